#!/usr/bin/env python3
"""Makes `samples/sentences.json`: fifty texts that a tokeniser can stumble over, and ordinary sentences.

Standard library only. The file is committed; run this to change it, then `scripts/minilm-reference.py`.
"""

import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent

ORDINARY = [
    "The weir holds the river back until the gates open.",
    "A dam regulates how much water flows downstream.",
    "The cat sleeps on the warm windowsill.",
    "A kitten naps in the sun by the window.",
    "Stock markets fell sharply after the announcement.",
    "Shares dropped when the news came out.",
    "How do I reset my password?",
    "I forgot my login and cannot get in.",
    "The train to the coast leaves at half past nine.",
    "Bake the bread for forty minutes, until the crust is brown.",
    "Photosynthesis turns light into chemical energy.",
    "The committee postponed its decision to the next meeting.",
    "Rust checks at compile time who owns a value.",
    "Each tenant's functions run in a sandbox of their own.",
    "It rained all night, and the path was gone in the morning.",
    "Nobody expected the goalkeeper to score.",
    "The patient was given antibiotics for ten days.",
    "Turn left after the bridge, then straight on for two kilometres.",
]

HARD = [
    # Nothing, in several ways.
    "",
    "   \t\n\r  ",
    "\u200b\ufeff\u0000\ufffd",
    # Accents, composed and not; letters that are none; case that changes length.
    "Das Café in São Tomé serviert Crème brûlée.",
    "Cafe\u0301 cre\u0300me, as combining characters.",
    "ÜBER den WOLKEN muß die Freiheit GROẞ sein",
    "İstanbul'da güneşli bir gün",
    "Smørrebrød på øen, þorn, łódź, đón",
    "Ἡ γνῶσις καὶ ἡ σοφία",
    # Scripts without spaces, with marks of their own, from right to left.
    "北京是中国的首都。",
    "東京タワーは夜に光ります",
    "한국어 문장도 있습니다.",
    "mixed 中文 and English文字",
    "यह हिन्दी का एक वाक्य है",
    "สวัสดีชาวโลก",
    "مرحبا بالعالم، كيف الحال؟",
    "שָׁלוֹם עוֹלָם",
    "\U00020000\U0002a6d6 rare ideographs \u3007",
    # Emoji: known to the vocabulary or not, joined, with modifiers, flags.
    "Great job! 🎉👍🏽",
    "👩\u200d👩\u200d👧 family at the 🏖️ in 🇮🇸",
    # Punctuation.
    "Wait... what?! (really -- \"yes\", 'no'; [maybe] {never})",
    "https://example.com/a/b?c=d&e=%20#frag user@example.com",
    "«Quotes» „of“ ‹many› ‘kinds’ – and — dashes… ¿sí? ¡no!",
    "$3.50 + 20% = £4 < €5 ^ `tick` ~tilde~ |bar| _under_score_",
    "x\u00a0y\u2003z\u3000w\u2028v: other white space",
    # Words that are not in the vocabulary, up to the length at which one is not looked at any more.
    "Donaudampfschifffahrtsgesellschaftskapitän antidisestablishmentarianism qwrtzpsdfg",
    "a" * 100 + " " + "b" * 101,
    # What names a special token is that token.
    "The capital of France is [MASK]. [SEP] [CLS][PAD] [mask] [UNKNOWN] [UNK]",
    # Control and format characters within words; the ends of planes.
    "soft\u00adhyphen zero\u200dwidth bell\u0007 private\ue000use \U0010fffd tab\tin",
    # Longer than the model looks: cut after 256 tokens.
    " ".join(f"Gauge {i} reads {140 + i * 7 % 23} cm at the old mill." for i in range(60)),
    # Around the cut: 254 tokens, and a word of several pieces across it.
    "one " * 254,
    "two " * 253 + "antidisestablishmentarianism",
]


def main() -> None:
    sentences = ORDINARY + HARD
    text = json.dumps(sentences, indent=1, ensure_ascii=True) + "\n"
    (HERE / "samples" / "sentences.json").write_text(text, encoding="utf-8")
    print(f"{len(sentences)} sentences")


if __name__ == "__main__":
    main()
