"""The look of a report: quiet colours by meaning, one column, system fonts. Without `<` and `&`: it stands in XML."""

STYLE = """
:root {
  --ground: #f6f7f9; --card: #ffffff; --ink: #1d2530; --quiet: #5a6675; --line: #e2e6ec; --axis: #aab3bf;
  --good: #23744a; --good-ground: #e8f4ed; --bad: #b2382e; --bad-ground: #fbecea;
  --warning: #8a5a00; --warning-ground: #fbf2de; --plain-ground: #eef2f8;
  --s0: #3d6fb4; --s1: #c0742c; --s2: #3a8f71; --s3: #8660ad; --s4: #2c8a9e; --s5: #b4547b; --band: #b9cbe4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #12161c; --card: #1a2028; --ink: #e4e9f0; --quiet: #98a4b3; --line: #2b333e; --axis: #566272;
    --good: #62c490; --good-ground: #16291f; --bad: #f0837a; --bad-ground: #33191a;
    --warning: #e0b050; --warning-ground: #2d2413; --plain-ground: #1c2531;
    --s0: #7ba6e0; --s1: #e0a064; --s2: #6fc2a4; --s3: #b596d8; --s4: #63bccd; --s5: #e08bae; --band: #34506f;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 2.2rem 1.1rem 3rem; max-width: 62rem; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.25; letter-spacing: -0.01em; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 0.8rem; overflow-wrap: anywhere; }
p { margin: 0.6rem 0; max-width: 46rem; overflow-wrap: anywhere; }
code { font: 0.9em ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  background: var(--plain-ground); border-radius: 4px; padding: 0.1em 0.35em; }
.subtitle, .note, footer { color: var(--quiet); }
.subtitle { margin: 0.3rem 0 0; }
.note { font-size: 0.875rem; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: 0.875rem; }
.verdict { display: flex; gap: 0.9rem; align-items: flex-start; padding: 1rem 1.2rem; border-radius: 12px;
  margin: 0.9rem 0; background: var(--plain-ground); border: 1px solid transparent; }
.verdict .sign { flex: none; width: 1.9rem; height: 1.9rem; border-radius: 50%; display: grid; place-items: center;
  background: var(--quiet); color: var(--card); font-weight: 700; line-height: 1; }
.verdict .headline { margin: 0.1rem 0 0; font-size: 1.12rem; font-weight: 600; }
.verdict ul { margin: 0.4rem 0 0; padding-left: 1.1rem; color: var(--ink); overflow-wrap: anywhere; }
.verdict.tone-good { background: var(--good-ground); color: var(--good); }
.verdict.tone-bad { background: var(--bad-ground); color: var(--bad); }
.verdict.tone-warning { background: var(--warning-ground); color: var(--warning); }
.verdict.tone-good .sign { background: var(--good); }
.verdict.tone-bad .sign { background: var(--bad); }
.verdict.tone-warning .sign { background: var(--warning); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.7rem; margin: 0.9rem 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 0.75rem 0.8rem; }
.tile dt { color: var(--quiet); font-size: 0.875rem; }
.tile dd { margin: 0.1rem 0 0; font-size: 1.25rem; font-weight: 600; line-height: 1.3;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.tile dd.note { font-size: 0.8rem; font-weight: 400; }
.tile.tone-good dd:not(.note) { color: var(--good); }
.tile.tone-bad dd:not(.note) { color: var(--bad); }
.tile.tone-warning dd:not(.note) { color: var(--warning); }
.wide { overflow-x: auto; }
.wide:focus-visible, summary:focus-visible { outline: 2px solid var(--s0); outline-offset: 2px; border-radius: 6px; }
.table, figure { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 0.9rem 1.1rem;
  margin: 0.9rem 0; }
details .table { border: 0; padding: 0; margin: 0.6rem 0 0; }
details { margin-top: 0.6rem; }
summary { color: var(--quiet); font-size: 0.875rem; cursor: pointer; }
details caption { display: none; }
table { border-collapse: collapse; width: 100%; font-size: 0.925rem; }
caption { text-align: left; font-weight: 600; padding-bottom: 0.5rem; }
th, td { text-align: left; padding: 0.38rem 0.9rem 0.38rem 0; border-bottom: 1px solid var(--line);
  vertical-align: baseline; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--quiet); font-weight: 500; font-size: 0.85rem; }
tbody th { font-weight: 400; min-width: 7rem; overflow-wrap: break-word; }
tbody tr:last-child th, tbody tr:last-child td { border-bottom: 0; }
tfoot th, tfoot td { font-weight: 600; border-top: 1px solid var(--axis); border-bottom: 0; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.tone-good { color: var(--good); }
td.tone-bad, th.tone-bad { color: var(--bad); font-weight: 600; }
td.tone-warning { color: var(--warning); }
figcaption .note { display: block; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: 0.2rem 1.1rem; margin: 0.4rem 0 0; padding: 0;
  font-size: 0.875rem; color: var(--quiet); }
.swatch { display: inline-block; width: 0.8rem; height: 0.8rem; border-radius: 3px; margin-right: 0.4rem;
  background: currentColor; }
.plot { display: block; width: 100%; min-width: 34rem; height: auto; margin-top: 0.7rem; }
.plot text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  fill: var(--quiet); stroke: none; font-variant-numeric: tabular-nums; }
.plot .strong { fill: var(--ink); }
.plot .end { text-anchor: end; }
.plot .middle { text-anchor: middle; }
.plot .grid { stroke: var(--line); }
.plot .axis { stroke: var(--axis); }
.plot .mark { stroke: currentColor; stroke-dasharray: 4 3; }
.plot rect, .plot circle, .plot path { fill: currentColor; }
.plot .line { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; }
.plot .cross { fill: none; stroke: currentColor; stroke-width: 2.6; stroke-linecap: round; }
.series-0, .plot .tone-plain { color: var(--s0); } .series-1 { color: var(--s1); } .series-2 { color: var(--s2); }
.series-3 { color: var(--s3); } .series-4 { color: var(--s4); } .series-5 { color: var(--s5); }
.plot .tone-good, .swatch.tone-good { color: var(--good); }
.plot .tone-bad, .swatch.tone-bad { color: var(--bad); }
.plot .tone-warning, .swatch.tone-warning { color: var(--warning); }
.plot text.tone-good, .plot text.tone-bad, .plot text.tone-warning { fill: currentColor; }
.plot .span.tone-plain { color: var(--band); }
.plot rect { opacity: 0.9; }
@media (max-width: 34rem) {
  body { padding: 1.2rem 0.8rem 2rem; }
  h1 { font-size: 1.4rem; }
  .table, figure { padding: 0.75rem 0.8rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); }
  .tile dd { font-size: 1.2rem; }
}
@media print {
  :root { --ground: #ffffff; --card: #ffffff; --ink: #000000; --quiet: #444444; --line: #cccccc; --axis: #888888;
    --good: #23744a; --good-ground: #ffffff; --bad: #b2382e; --bad-ground: #ffffff; --warning: #8a5a00;
    --warning-ground: #ffffff; --plain-ground: #f2f2f2; --s0: #3d6fb4; --s1: #c0742c; --s2: #3a8f71; --s3: #8660ad;
    --s4: #2c8a9e; --s5: #b4547b; --band: #b9cbe4; }
  body { max-width: none; padding: 0; font-size: 11pt; }
  .verdict { border-color: currentColor; }
  .tile, figure, .verdict, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  .plot { min-width: 0; }
  summary { display: none; }
}
"""
