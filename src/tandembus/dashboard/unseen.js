// Characters that are not seen, and turn text around or hide a part of it. Pure functions of texts.

/** Controls but for tabs and ends of lines, and all that Unicode lets programs leave out when they draw a text: marks of
    direction, widths of nothing, tags. */
const UNSEEN = String.raw`[\p{Default_Ignorable_Code_Point}\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb]`;
/** But for those that belong to the letters around them: joined emoji, letters of scripts that join, variants of signs. */
const FITTING = [
  String.raw`(?<=\p{Extended_Pictographic}[\ufe0f\p{Emoji_Modifier}]?)\u200d(?=\p{Extended_Pictographic})`,
  String.raw`(?<=[\p{Lo}\p{M}])(?<!${UNSEEN})[\u200c\u200d](?!${UNSEEN})(?=[\p{Lo}\p{M}])`,
  String.raw`(?<!${UNSEEN}|^)[\ufe00-\ufe0f]`,
  String.raw`(?<=\p{Ideographic})[\u{e0100}-\u{e01ef}]`,
].join("|");
const RUN = new RegExp(`(?:(?!${FITTING})${UNSEEN})+`, "gu");
const ANY = new RegExp(RUN, "u");
/** Of one run: there may be thousands. */
const MOST_CODES = 3;

export function hasUnseen(text) { return ANY.test(text); }

function codesOf(run) {
  const letters = [...run];
  const codes = letters.slice(0, MOST_CODES).map((letter) => `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
  return letters.length > MOST_CODES ? `${codes.join(" ")} +${letters.length - MOST_CODES}` : codes.join(" ");
}

/** Its parts in their order: { text } as it is, or { text, codes } for what is not seen. */
export function partsOf(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(RUN)) {
    if (found.index > end) parts.push({ text: text.slice(end, found.index) });
    parts.push({ text: found[0], codes: codesOf(found[0]) });
    end = found.index + found[0].length;
  }
  if (end < text.length) parts.push({ text: text.slice(end) });
  return parts;
}

/** For places that hold a text and nothing else. */
export function spelled(text) {
  return hasUnseen(text) ? text.replace(RUN, (run) => `⟨${codesOf(run)}⟩`) : text;
}

/** What is not seen in it, in a few codes; nothing if all is. */
export function unseenIn(text) {
  return hasUnseen(text) ? codesOf([...text.matchAll(RUN)].map(([run]) => run).join("")) : null;
}
