"""How the page of a bench looks: light and dark, on a wide screen and on a phone."""

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --faint: #5b6470;
  --rule: #d8dde3; --soft: #f3f5f7; --warn: #7a4b00; --warn-soft: #fff3d6; --good: #0b6b3a;
  --c0: #1c2024; --c1: #0060a8; --c2: #b34a00; --c3: #00724f; --c4: #8f3a84; --c5: #7a6000;
  --c6: #b0203a; --s0: #2f7fd0; --s1: #e08a1e; --s2: #2a9d6f; --s3: #a55ac4; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e8eaed; --faint: #a2abb5;
  --rule: #343a41; --soft: #1d2125; --warn: #ffcf70; --warn-soft: #33280f; --good: #6fdc9f;
  --c0: #e8eaed; --c1: #6db6f5; --c2: #ff9c5a; --c3: #4fd3a5; --c4: #e39ad8; --c5: #e0c34a;
  --c6: #ff8fa0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 68rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.4rem 0 0.2rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 0.4rem; }
p.under { margin: 0 0 1rem; color: var(--faint); }
p.notice { background: var(--warn-soft); color: var(--warn); border-left: 4px solid;
  padding: 0.5rem 0.8rem; font-weight: 600; }
ul { padding-left: 1.2rem; } li { margin: 0.35rem 0; }
li b { color: var(--good); }
.wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.75rem; text-align: right; border-top: 1px solid var(--rule);
  overflow-wrap: normal; }
td { white-space: pre-line; min-width: 8.5rem; }
th[scope=row] { text-align: left; font-weight: 400; color: var(--faint); position: sticky; left: 0;
  background: var(--paper); min-width: 7.5rem; }
thead th { border-top: 0; background: var(--soft); }
thead td { border-top: 0; background: var(--soft); position: sticky; left: 0; min-width: 7.5rem; }
td.doubtful { color: var(--faint); text-decoration: line-through; }
svg.figure { display: block; width: 100%; min-width: 44rem; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--faint); }
svg .title { font-weight: 600; fill: var(--ink); }
svg .run { text-anchor: middle; fill: var(--ink); font-weight: 600; }
svg .tick { text-anchor: end; } svg .time { text-anchor: middle; } svg .name { fill: var(--ink); }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
svg .line0 { stroke: var(--c0); stroke-width: 2; } svg .line1 { stroke: var(--c1); }
svg .line2 { stroke: var(--c2); } svg .line3 { stroke: var(--c3); }
svg .line4 { stroke: var(--c4); } svg .line5 { stroke: var(--c5); }
svg .line6 { stroke: var(--c6); }
svg .idle { fill-opacity: 0.06; } svg .steady { fill-opacity: 0.16; }
svg .shade0 { fill: var(--s0); } svg .shade1 { fill: var(--s1); } svg .shade2 { fill: var(--s2); }
svg .shade3 { fill: var(--s3); }
dl { display: grid; grid-template-columns: minmax(8rem, max-content) 1fr; gap: 0.2rem 1rem; }
dt { color: var(--faint); } dd { margin: 0; }
footer { margin-top: 2.5rem; color: var(--faint); font-size: 0.9rem; }
@media (max-width: 40rem) { table { font-size: 0.8rem; } th, td { padding: 0.3rem 0.4rem; }
  td { min-width: 6.6rem; } th[scope=row], thead td { min-width: 5.2rem; } }
@media print { .wide { overflow: visible; } svg.figure { min-width: 0; } }
"""
