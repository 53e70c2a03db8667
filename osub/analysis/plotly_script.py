"""Plotly's script in a page that loads nothing from a network, at a third of its size.

The script is 4.9 MB of text, 1.5 MB compressed. A page holds it compressed (gzip), as text (base 85 after
RFC 1924, with a full stop for ``<``), and a few lines of its own unpack it with what browsers have had since
2023 (``DecompressionStream``). Until that is done, figures that the page asks for wait in a queue. A browser
without it shows the page's texts and tables, and says so.
"""

from __future__ import annotations

import base64
import gzip
from functools import lru_cache

from plotly.offline import get_plotlyjs

_UNPACK = """
(() => {
  const waiting = [];
  window.Plotly = {newPlot: (...figure) => new Promise((done) => waiting.push([figure, done]))};
  const letters = "LETTERS";
  const place = new Uint8Array(128);
  for (let at = 0; at < letters.length; at++) place[letters.charCodeAt(at)] = at;
  const unpack = async (text, length) => {
    const bytes = new DataView(new ArrayBuffer(text.length / 5 * 4));
    for (let at = 0, to = 0; at < text.length; at += 5, to += 4) {
      let word = 0;
      for (let next = at; next < at + 5; next++) word = word * 85 + place[text.charCodeAt(next)];
      bytes.setUint32(to, word);
    }
    const packed = new Blob([bytes.buffer.slice(0, length)]).stream();
    const script = document.createElement("script");
    script.textContent = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).text();
    document.head.append(script);
    for (const [figure, done] of waiting) done(await window.Plotly.newPlot(...figure));
    document.documentElement.dataset.drawn = "yes";
  };
  if (typeof DecompressionStream === "undefined") {
    document.write("<p>The figures of this page need a browser of 2023 or newer.</p>");
  } else {
    unpack("PACKED", LENGTH);
  }
})();
"""

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;.=>?@^_`{|}~"
"""Python's alphabet of base 85, but no ``<``: no markup can begin in the text."""


@lru_cache(maxsize=1)
def plotly_script() -> str:
    """Return the text of a script element that brings Plotly; it comes before all figures."""
    packed = gzip.compress(get_plotlyjs().encode(), 9, mtime=0)
    filled = packed + bytes(-len(packed) % 4)
    text = base64.b85encode(filled).decode("ascii").replace("<", ".")
    return _UNPACK.replace("LETTERS", _LETTERS).replace("LENGTH", str(len(packed))).replace("PACKED", text)
