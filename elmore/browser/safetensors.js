// The tensors of a safetensors file: {data, scales, shape} by name. Numbers become float32, but int8
// rows with their scales stay as they are, as elmore/weights/tensor_file.py reads them.

const SCALE = ".scale";

export function readTensors(buffer, name) {
  const header = readHeader(buffer, name);
  const begin = 8 + Number(new DataView(buffer).getBigUint64(0, true));
  const array = ({ dtype, data_offsets: [first, last] }) => {
    const bytes = buffer.slice(begin + first, begin + last); // a copy is aligned
    if (!READERS[dtype]) throw new Error(`${name} has numbers of type ${dtype}: export the folder again`);
    return READERS[dtype](bytes);
  };
  const tensors = {};
  for (const [key, entry] of Object.entries(header)) {
    if (key === "__metadata__" || (key.endsWith(SCALE) && header[key.slice(0, -SCALE.length)])) continue;
    const scale = header[key + SCALE];
    tensors[key] = { data: array(entry), scales: scale ? array(scale) : null, shape: entry.shape };
  }
  return tensors;
}

// A matrix whose numbers may be packed into bytes, 2 or 4 bits each, the first in the lowest bits: the
// odd numbers of elmore/model/rounding.py.
export function unpack(tensor, width) {
  const { data, scales, shape: [height, bytes] } = tensor;
  if (!(data instanceof Uint8Array)) return tensor;
  const bits = (8 * bytes) / width, perByte = 8 / bits, mask = 2 ** bits - 1;
  const numbers = new Int8Array(height * width);
  for (let i = 0; i < numbers.length; i++) {
    numbers[i] = 2 * ((data[Math.floor(i / perByte)] >> (bits * (i % perByte))) & mask) - mask;
  }
  return { data: numbers, scales, shape: [height, width] };
}

// The numbers of a tensor, or of its rows times their scales, as floats.
export function dense({ data, scales }) {
  if (!scales) return data;
  const out = new Float32Array(data.length), width = data.length / scales.length;
  for (let i = 0; i < data.length; i++) out[i] = data[i] * scales[Math.floor(i / width)];
  return out;
}

function readHeader(buffer, name) {
  try {
    const size = Number(new DataView(buffer).getBigUint64(0, true));
    return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  } catch {
    throw new Error(`${name} is damaged: copy the exported folder again`);
  }
}

const READERS = {
  I8: (bytes) => new Int8Array(bytes),
  U8: (bytes) => new Uint8Array(bytes),
  F32: (bytes) => new Float32Array(bytes),
  F64: (bytes) => Float32Array.from(new Float64Array(bytes)),
  BF16: (bytes) => new Float32Array(Uint32Array.from(new Uint16Array(bytes), (x) => x << 16).buffer),
  F16: (bytes) => Float32Array.from(new Uint16Array(bytes), fromHalf),
};

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}
