/** The scripts of Unicode, by their names in RegExp properties. */
const SCRIPTS =
  "Latin Han Hiragana Katakana Common Inherited Cyrillic Arabic Greek Hangul Hebrew Devanagari Thai Bengali Tamil Telugu " +
  "Adlam Ahom Anatolian_Hieroglyphs Armenian Avestan Balinese Bamum Bassa_Vah Batak Bhaiksuki Bopomofo Brahmi Braille " +
  "Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Coptic Cuneiform Cypriot Deseret " +
  "Duployan Egyptian_Hieroglyphs Elbasan Ethiopic Georgian Glagolitic Gothic Grantha Gujarati Gurmukhi Hanunoo Hatran " +
  "Imperial_Aramaic Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Kayah_Li Kharoshthi Khmer Khojki " +
  "Khudawadi Lao Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Malayalam Mandaic Manichaean Marchen " +
  "Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean " +
  "New_Tai_Lue Newa Nko Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian " +
  "Old_South_Arabian Old_Turkic Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician " +
  "Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sora_Sompeng Sundanese " +
  "Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tangut Thaana Tibetan Tifinagh Tirhuta Ugaritic " +
  "Vai Warang_Citi Yi";

let tests: readonly (readonly [name: string, test: RegExp])[] | undefined;
const found = new Map<number, string>();
const MAX_FOUND = 1 << 16;

/** The script of a character; hiragana and katakana count as Han, a space and characters of no script as any. */
function scriptOf(codePoint: number): string {
  const known = found.get(codePoint);
  if (known !== undefined) return known;
  tests ??= SCRIPTS.split(" ").map((name) => [name, new RegExp(`^\\p{Script=${name}}$`, "v")]);
  const char = String.fromCodePoint(codePoint);
  const name =
    codePoint === 0x30fc ? "Han" : char === " " ? "" : (tests.find(([, test]) => test.test(char))?.[0] ?? "");
  const script = name === "Hiragana" || name === "Katakana" ? "Han" : name;
  if (found.size < MAX_FOUND) found.set(codePoint, script);
  return script;
}

/** Where the script of a text changes. The first place is that of its first character with a script. */
export function scriptStarts(text: string): number[] {
  const starts: number[] = [];
  let last: string | undefined;
  let offset = 0;
  for (const char of text) {
    const script = scriptOf(char.codePointAt(0) as number);
    if (script !== "" && script !== last) starts.push(offset);
    if (script !== "") last = script;
    offset += char.length;
  }
  return starts;
}
