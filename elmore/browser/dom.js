// Elements of the page: find one by its id, make one with properties and children.

export const at = (id) => document.getElementById(id);

export function make(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}
