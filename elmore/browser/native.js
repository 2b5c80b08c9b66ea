// Calls the native library, compiled to WebAssembly, as elmore/model/native.py does: packed weights,
// and the products of the network. Addresses are numbers, because a memory that grows moves its views.

const LINE = 64; // bytes of a cache line, where every array begins
const FLOAT32 = 0, INT8_WEIGHTS = 1; // kinds of packed weights: kernels.h

// The structures of kernels.h, in its order. The address of an array is a pointer, others are int64.
const pointers = (names) => names.split(" ").map((name) => [name, "pointer"]);
const integers = (names) => names.split(" ").map((name) => [name, "integer"]);
const matrices = (names) => names.split(" ").map((name) => [name, "matrix"]);
const floats = (names) => names.split(" ").map((name) => [name, "float"]);
const STRUCTURES = {
  matrix: [...pointers("data scales corrections"), ...integers("height width parts kind")],
  product: [...matrices("weight"), ...pointers("rows bias out"), ...integers("num_rows threads")],
  lstm_call: [
    ...matrices("input recurrent projection"), ...pointers("bias inputs"),
    ...integers("input_step input_row"), ...pointers("input_index mask"),
    ...integers("mask_step mask_row"), ...pointers("reset_mask"), ...integers("reset_step reset_row"),
    ...pointers("reset_output reset_cell"), ...integers("reset_output_row reset_cell_row"),
    ...pointers("first_output first_cell"), ...integers("first_output_row first_cell_row"),
    ...pointers("output cell outputs"), ...integers("output_row"), ...pointers("output_index"),
    ...integers("num_steps num_rows num_cells width skip threads"),
    ...floats("forget_bias cell_clip output_clip"),
  ],
  char_cnn_call: [
    ...pointers("banks bias embedding characters out"),
    ...integers("num_banks num_words num_characters embedding_dim num_filters threads"),
  ],
  highway_call: [...pointers("gate transform x out"), ...integers("count threads")],
  tanh_call: [...pointers("values"), ...integers("count threads")],
};

// Where each field of a structure is, and its size: a field begins at a multiple of its alignment.
function layOut(fields, known) {
  const at = {};
  let size = 0, largest = 1;
  for (const [name, type] of fields) {
    const [bytes, alignment] = type === "integer" ? [8, 8]
      : type === "matrix" ? [known.matrix.size, 8] : [4, 4];
    size = Math.ceil(size / alignment) * alignment;
    at[name] = { offset: size, type };
    size += bytes;
    largest = Math.max(largest, alignment);
  }
  return { at, size: Math.ceil(size / largest) * largest };
}

const LAYOUTS = {};
for (const [name, fields] of Object.entries(STRUCTURES)) LAYOUTS[name] = layOut(fields, LAYOUTS);

export class NativeLibrary {
  #exports;
  #temporary = [];

  constructor(instance) {
    this.#exports = instance.exports;
    this.#exports._initialize();
    Object.values(LAYOUTS).forEach(({ size }, number) => {
      if (Number(this.#exports.elmore_struct_size(BigInt(number))) !== size)
        throw new Error("elmore.wasm is not of this page: export the folder again");
    });
    this.panelRows = Number(this.#exports.elmore_panel_rows());
  }

  // ---- memory

  reserve(bytes) {
    const address = this.#exports.aligned_alloc(LINE, Math.max(1, Math.ceil(bytes / LINE)) * LINE);
    if (!address) throw new Error("this browser gives the page too little memory for the model");
    return address;
  }

  // Like `reserve`, until the end of `work`.
  scratch(bytes) {
    this.#temporary.push(this.reserve(bytes));
    return this.#temporary.at(-1);
  }

  // Run `work`, and free its scratch memory.
  work(work) {
    const before = this.#temporary.length;
    try {
      return work();
    } finally {
      while (this.#temporary.length > before) this.#exports.free(this.#temporary.pop());
    }
  }

  bytesAt(address, count) { return new Uint8Array(this.#exports.memory.buffer, address, count); }
  floatsAt(address, count) { return new Float32Array(this.#exports.memory.buffer, address, count); }

  write(address, array) {
    this.bytesAt(address, array.byteLength)
      .set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    return address;
  }

  // A copy of a typed array, for good or until the end of `work`.
  keep(array) { return this.write(this.reserve(array.byteLength), array); }
  lend(array) { return this.write(this.scratch(array.byteLength), array); }
  zeros(count) {
    const address = this.scratch(4 * count);
    this.bytesAt(address, 4 * count).fill(0);
    return address;
  }

  // Write structures one after another; fields that are not given are zero.
  structures(name, all) {
    const { at, size } = LAYOUTS[name];
    const address = this.scratch(all.length * size);
    const view = new DataView(this.#exports.memory.buffer);
    this.bytesAt(address, all.length * size).fill(0);
    all.forEach((values, i) => fill(view, address + i * size, at, values));
    return address;
  }

  // ---- weights

  // Pack a weight (height, width), int8 with a scale for each row or floats, in the layout of kernels.h.
  pack({ data, scales, shape: [height, width] }, parts = 1) {
    const kind = data instanceof Int8Array ? INT8_WEIGHTS : FLOAT32;
    const inPanels = (rows, columns) => this.keep(byPanel(rows, height, columns, parts, this.panelRows));
    return {
      data: inPanels(data, width), scales: kind === INT8_WEIGHTS ? inPanels(scales, 1) : 0,
      corrections: 0, height, width, parts, kind,
    };
  }

  // ---- calls

  // The address of rows (numRows, width) times the transposed weight, plus a bias.
  multiply(weight, rows, numRows, bias = null) {
    const out = this.scratch(4 * numRows * weight.height);
    const added = bias ? this.lend(bias) : 0;
    this.#run("multiply", "product", [{ weight, rows, bias: added, out, num_rows: numRows, threads: 1 }]);
    return out;
  }

  runLSTM(calls) {
    const structures = this.structures("lstm_call", calls);
    this.#check(this.#exports.elmore_run_lstm(structures, BigInt(calls.length)));
  }

  runCharCNN(banks, call) {
    this.#run("run_char_cnn", "char_cnn_call",
      [{ ...call, banks: this.structures("matrix", banks), num_banks: banks.length, threads: 1 }]);
  }

  runHighway(call) { this.#run("run_highway", "highway_call", [{ ...call, threads: 1 }]); }
  runTanh(values, count) { this.#run("run_tanh", "tanh_call", [{ values, count, threads: 1 }]); }

  #run(name, structure, all) {
    this.#check(this.#exports[`elmore_${name}`](this.structures(structure, all)));
  }

  #check(failed) {
    if (failed) throw new Error("this browser gives the page too little memory for so much text");
  }
}

function fill(view, address, at, values) {
  for (const [name, value] of Object.entries(values)) {
    const { offset, type } = at[name], to = address + offset;
    if (type === "pointer") view.setUint32(to, value, true);
    else if (type === "integer") view.setBigInt64(to, BigInt(value), true);
    else if (type === "float") view.setFloat32(to, value, true);
    else fill(view, to, LAYOUTS.matrix.at, value);
  }
}

// Rows in panels of `panelRows`: the first panel of every part, then the second of every part; a panel
// has for each column its rows side by side. Rows that fill up the last panel of a part are zero.
function byPanel(rows, height, width, parts, panelRows) {
  const tall = height / parts, panels = Math.ceil(tall / panelRows);
  const out = new rows.constructor(panels * parts * width * panelRows);
  for (let panel = 0; panel < panels; panel++)
    for (let part = 0; part < parts; part++) {
      const to = (panel * parts + part) * width * panelRows;
      const count = Math.min(panelRows, tall - panel * panelRows);
      for (let r = 0; r < count; r++) {
        const from = (part * tall + panel * panelRows + r) * width;
        for (let k = 0; k < width; k++) out[to + k * panelRows + r] = rows[from + k];
      }
    }
  return out;
}
