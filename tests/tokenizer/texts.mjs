// Varied texts for the tokenizer check, the same for the same seed.

function makeRandom(seed) {
  let state = seed >>> 0;
  const next = () => {  // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (n) => Math.floor(next() * n);
  return { below, pick: (list) => list[below(list.length)] };
}

const sentences = [
  "The parcel never arrived, and nobody answers the phone.",
  "Ich warte seit drei Wochen auf die Rückerstattung – bitte prüfen Sie das!",
  "Où est ma commande n° 4711 ? C'est déjà la troisième fois…",
  "¿Por qué me cobraron dos veces? ¡Es inaceptable!",
  "Mój komputer wyświetla błąd „nie znaleziono pliku”.",
  "Đơn hàng của tôi bị giao sai địa chỉ.",
  "Сервер не отвечает уже два часа, это срочно.",
  "Η παραγγελία μου δεν έφτασε ποτέ.",
  "החבילה שלי לא הגיעה, אנא בדקו.",
  "لم تصل الشحنة بعد، أرجو التحقق من الأمر.",
  "मेरा भुगतान दो बार कट गया है।",
  "আমার অর্ডারটি এখনও আসেনি।",
  "எனது கணக்கில் உள்நுழைய முடியவில்லை.",
  "ฉันไม่สามารถเข้าสู่ระบบได้ตั้งแต่เมื่อวาน",
  "我的包裹三天前就应该到了,为什么还没有消息?",
  "パスワードを忘れました。リセットしてください。",
  "환불은 언제 되나요? 너무 오래 걸립니다.",
  "ჩემი შეკვეთა ჯერ არ მოსულა.",
  "Պատվերս դեռ չի հասել։",
  "የእኔ ትዕዛዝ አልደረሰም።",
  "ខ្ញុំមិនទាន់ទទួលបានកញ្ចប់ទេ។",
  "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ ᚠᚢᚦᚨᚱᚲ 𐌲𐌿𐍄𐌹𐍃𐌺 𓀀𓂀",
  "x² + y² ≤ r² ∧ ∀ε>0 ∃δ: |f(x)−L| < ε, 𝔸𝕓𝖈 ﬁ ½ ™",
  "e\u0301 vs é, A\u030a vs Å, ﷺ, \u200b\u200d\u2060\ufeff, a\u0300\u0301\u0302\u0303\u0304\u0305",
  "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇯🇵 ❤️‍🔥 🧑🏿‍🚀 ☃️ 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
  "q1: yes\nq2: no\nmood: 3\nteam: A",
  "ID 0000123456789, 3.14159, 1,234,567.89, 0xDEADBEEF, 1e-9, 2026-12-01T04:10:10Z",
  "https://example.org/a/b?c=d&e=%20f#g <mail@example.org> C:\\Users\\x\\y.txt",
];

const code = [
  "int main(int argc, char** argv) {\n\tfor (int i = 0; i < argc; ++i) {\n\t\tputs(argv[i]);\n\t}\n\treturn 0;\n}\n",
  "def f(x):\n    if x > 0:\n        return [y**2 for y in range(x)]\n    else:\n        raise ValueError(f\"{x!r}\")\n",
  "<table>\n  <tr><td>1</td><td>&nbsp;</td></tr>\n</table><h1>x</h1><b>y</b>",
  '{"a": [1, 2.5, null, true], "b": {"c": "\\u00e9\\n"}}\n',
  "SELECT count(*) FROM t WHERE a='b' AND c <> 3; -- comment",
  "#!/bin/sh\nset -e\nfor f in *.txt; do echo \"$f\" | sed 's/a/b/g' >> out; done\n",
  "const a = async () => { await b?.c ?? `d${e}`; };  // x\r\n\r\n",
];

const nearControl = [
  "<|", "|>", "<", ">", "|", "<|turn", "turn|>", "<|turn|>", "<<|turn>>", "<start_of_turn", "<end_of_turn >", "<unused",
  "<unused1",
  "<0x0A>", "<0x41><0xE2><0x96>", "<bos", "bos>", "< bos>", "<|channel>thought\n<channel|>", "[multimodal]", "[@BOS@]",
];

const spaces = [" ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2581", "\v", "\0", "\u2028", "\u0085"];

// A code point of any plane, not a surrogate.
function codePoint(random) {
  for (;;) {
    const top = random.pick([0x80, 0x250, 0x800, 0x3000, 0x10000, 0x20000, 0x110000]);
    const c = random.below(top);
    if (c < 0xd800 || c > 0xdfff) return String.fromCodePoint(c);
  }
}

function repeated(random, makePart, most) {
  let text = "";
  for (let n = 1 + random.below(most); n > 0; --n) text += makePart();
  return text;
}

// Bytes, a third of them broken: cut, overwritten, or with stray bytes.
function breakBytes(random, bytes) {
  const broken = Buffer.from(bytes);
  for (let n = 1 + random.below(5); n > 0 && broken.length > 0; --n) {
    const bad = [0x80, 0xbf, 0xc0, 0xc3, 0xe2, 0xed, 0xf0, 0xf4, 0xf5, 0xff, random.below(256)];
    broken[random.below(broken.length)] = random.pick(bad);
  }
  return broken.subarray(0, broken.length - random.below(Math.min(4, broken.length + 1)));
}

export function makeTexts(count, seed, addedTokens, vocabulary) {
  const random = makeRandom(seed);
  const space = () => random.pick(spaces).repeat(1 + random.below(random.pick([1, 3, 40, 90])));
  const named = addedTokens.filter((token) => !token.startsWith("<unused"));
  const control = named.filter((token) => /^<.*_of_|^<\||\|>$|^<[bepu]/.test(token));
  const added = () => random.pick(random.pick([addedTokens, named, control]));
  const phrase = () => random.pick([...sentences, ...code]);
  const slice = () => {
    const characters = Array.from(phrase());
    const at = random.below(characters.length);
    return characters.slice(at, at + 1 + random.below(20)).join("");
  };
  const makers = [
    phrase,
    () => repeated(random, slice, 12),
    () => repeated(random, () => slice() + space(), 8),
    () => repeated(random, () => random.pick([added, () => random.pick(nearControl), slice, space])(), 12),
    () => repeated(random, () => random.pick([added, () => random.pick(nearControl)])(), 12),
    () => repeated(random, () => codePoint(random), 60),
    () => repeated(random, () => random.pick(vocabulary), 20),
    () => repeated(random, () => random.pick([slice, () => random.pick(vocabulary), () => codePoint(random), space])(), 30),
    () => codePoint(random).repeat(1 + random.below(300)),
    () => (slice() + space()).repeat(1 + random.below(30)),
  ];
  const texts = [
    "", ...sentences, ...code, ...nearControl, ...spaces, ...addedTokens.slice(0, 300),
    "a".repeat(5000), " ".repeat(5000), "\n".repeat(5000), "\t \n".repeat(1500), "<".repeat(3000), "ab".repeat(3000),
    "é".repeat(3000), "\u{10ffff}".repeat(500), "the ".repeat(1000), "▁ ".repeat(500), "<|turn>".repeat(300),
    sentences.join("\n").repeat(3),
  ].map((text) => Buffer.from(text));
  while (texts.length < count) {
    const bytes = Buffer.from(random.pick(makers)());
    texts.push(random.below(5) === 0 ? breakBytes(random, bytes) : bytes);
  }
  return texts;
}
