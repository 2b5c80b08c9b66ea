// Starts a worker that keeps the policy of the page. A worker from an address would have the policy of
// its own headers, and a static site sends none; one from a blob inherits that of the page.

export function startWorker(url) {
  const script = new Blob([`import ${JSON.stringify(url.href)};`], { type: "text/javascript" });
  return new Worker(URL.createObjectURL(script), { type: "module" });
}
