// A learned whitening, as elmore/weights/whitening.py defines it: whitened = projection @ (joined - mean).
// Letters: T tokens, W width of the joined layers, K width of a whitened vector.

export class Whitening {
  #library; #mean; #projection;

  constructor(library, { mean, projection }) {
    this.#library = library;
    this.#mean = mean.data;
    this.#projection = library.pack(projection);
  }

  // The whitened vectors (T, K) of joined layers (T, W).
  apply(joined) {
    const library = this.#library, { height, width } = this.#projection, count = joined.length / width;
    const centred = joined.map((value, i) => value - this.#mean[i % width]);
    return library.work(() => library.floatsAt(
      library.multiply(this.#projection, library.lend(centred), count), count * height).slice());
  }
}
