// Puts untrusted text into the page: as text nodes only, with what cannot be seen made visible.

const NAMES = new Map([
  [0x00ad, "soft hyphen"], [0x061c, "Arabic letter mark"], [0x200b, "zero-width space"],
  [0x200c, "zero-width non-joiner"], [0x200d, "zero-width joiner"],
  [0x200e, "left-to-right mark"], [0x200f, "right-to-left mark"], [0x2028, "line separator"],
  [0x2029, "paragraph separator"], [0x202a, "left-to-right embedding"],
  [0x202b, "right-to-left embedding"], [0x202c, "pop directional formatting"],
  [0x202d, "left-to-right override"], [0x202e, "right-to-left override"],
  [0x2060, "word joiner"], [0x2066, "left-to-right isolate"], [0x2067, "right-to-left isolate"],
  [0x2068, "first strong isolate"], [0x2069, "pop directional isolate"],
  [0xfeff, "zero-width no-break space"],
]);

// Controls, format characters, blank letters, tags and lone surrogates. A joiner or selector
// inside an emoji is what the writer typed, so it stays.
const HIDDEN = new RegExp(
  "[\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5" +
  "\\u180b-\\u180f\\u200b\\u200c\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164" +
  "\\ufe00-\\ufe0e\\ufeff\\uffa0\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}\\p{Cs}]" +
  "|\\r(?!\\n)" +
  "|(?<![\\p{Extended_Pictographic}\\p{EMod}\\ufe0f])\\u200d" +
  "|(?<![\\p{Extended_Pictographic}0-9#*])\\ufe0f", "gu");

function code(character) {
  const point = character.codePointAt(0);
  const badge = document.createElement("span");
  badge.className = "hidden-character";
  badge.textContent = `U+${point.toString(16).toUpperCase().padStart(4, "0")}`;
  badge.title = NAMES.get(point) ?? "a character that is not visible";
  return badge;
}

function plain(parent, text) {
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    parent.append(text.slice(from, match.index), code(match[0]));
    from = match.index + match[0].length;
  }
  parent.append(text.slice(from));
}

function occurrences(text, marks) {
  const found = [];
  for (const { terms, kind } of marks) {
    for (const term of terms.filter((each) => each.trim())) {
      const escaped = term.replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&");
      for (const match of text.matchAll(new RegExp(escaped, "giu"))) {
        found.push({ from: match.index, to: match.index + match[0].length, kind });
      }
    }
  }
  return found.sort((one, other) => one.from - other.from || other.to - one.to);
}

/** Show a text in an element; `marks` lists what to mark: [{terms, kind}]. */
export function show(element, text, marks = []) {
  element.replaceChildren();
  let from = 0;
  for (const { from: start, to, kind } of occurrences(text, marks)) {
    if (start < from) continue; // inside a longer one
    plain(element, text.slice(from, start));
    const mark = document.createElement("mark");
    mark.className = kind;
    plain(mark, text.slice(start, to));
    element.append(mark);
    from = to;
  }
  plain(element, text.slice(from));
}
