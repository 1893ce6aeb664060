#pragma once

namespace temper {

/// The style of the page, for light and dark screens and any width. r0 ... r7: a run; p0 ... p9: a phase.
inline constexpr const char* kPageStyle = R"CSS(
:root{color-scheme:light dark;--bg:#f6f6f4;--card:#fff;--ink:#191918;--soft:#5f5e5a;--line:#e3e2de;
--grid:#ecebe7;
--good:#0b7a3e;--bad:#b3261e;--r0:#2a78d6;--r1:#d9581f;--r2:#128a63;--r3:#b07a00;--r4:#c9538a;
--r5:#4a3aa7;--r6:#5d7f17;--r7:#8a5a3c;
--p0:#7fb2ea;--p1:#f2b179;--p2:#8fd1b6;--p3:#b9a7e6;--p4:#e8c95c;--p5:#5b86b5;--p6:#e79ab4;--p7:#d3a283;
--p8:#a7b86d;--p9:#cfcdc6}
@media(prefers-color-scheme:dark){:root{--bg:#131312;--card:#1d1d1b;--ink:#ecebe6;--soft:#a3a199;
--line:#34332f;--grid:#2a2926;
--good:#5fc98c;--bad:#f08b82;--r0:#5aa0f2;--r1:#f0834c;--r2:#3dbb90;--r3:#d9a520;--r4:#e583b1;
--r5:#a296f2;--r6:#9cbf4f;--r7:#c99873;
--p0:#4f83bd;--p1:#bd7d45;--p2:#4f9b7f;--p3:#8272b8;--p4:#ab8f2c;--p5:#37577c;--p6:#ab6680;--p7:#8f6648;
--p8:#74833f;--p9:#55534d}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
-webkit-text-size-adjust:100%}
main{max-width:1320px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:24px;line-height:1.25;margin:0 0 14px;overflow-wrap:anywhere}
.pill{display:inline-block;vertical-align:.18em;font-size:12.5px;font-weight:600;line-height:1.5;
border:1px solid;border-radius:99px;padding:0 9px;white-space:nowrap}
.pill.ended{color:var(--good)}.pill.running{color:var(--r0)}.pill.stopped,.pill.silent{color:var(--r3)}
.pill.cut{color:var(--bad)}.pill.not{color:var(--soft)}
.lead{font-size:16.5px;max-width:none;overflow-wrap:anywhere}
.state{margin:2px 0 16px;max-width:none;overflow-wrap:anywhere}
.state::first-letter{text-transform:uppercase}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,260px),1fr));gap:14px;max-width:1000px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px;min-width:0;
font-size:13px;font-variant-numeric:tabular-nums}
.tile .k{overflow-wrap:anywhere}
.now{font-size:26px;font-weight:600;line-height:1.3}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,160px),1fr));gap:8px 24px;
margin:18px 0;font-size:14px}
.facts div{min-width:0}
dt{color:var(--soft);font-size:12.5px}
dd{margin:0;overflow-wrap:anywhere}
h2{font-size:18px;margin:40px 0 12px}
h3{font-size:14px;margin:20px 0 8px}
p{margin:6px 0;max-width:75ch}
.soft,figcaption small{color:var(--soft)}
code,pre,.k{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.88em}
nav{margin:14px 0 10px;display:flex;flex-wrap:wrap;gap:4px 18px;font-size:14px}
a{color:inherit;text-decoration-color:var(--soft);text-underline-offset:3px}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,360px),1fr));gap:14px}
figure,.card{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:12px 14px 10px;min-width:0}
figure{display:flex;flex-direction:column}
figure>svg,figure>.legend{margin-top:auto}
figcaption{margin-bottom:6px;overflow-wrap:anywhere}
figcaption b{font-weight:600;font-size:14px}
figcaption small{display:block;font-size:12.5px;line-height:1.35}
.last{display:flex;flex-wrap:wrap;gap:0 14px;font-size:12.5px;margin-top:3px;
font-variant-numeric:tabular-nums}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12.5px;padding:4px 0}
.sw{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:5px;
background:currentColor;vertical-align:-0.5px}
.n{overflow-wrap:anywhere}
td .n{display:inline-block;min-width:11ch}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{fill:var(--soft);font-size:10.5px;font-family:inherit;font-variant-numeric:tabular-nums}
.y{text-anchor:end}.x{text-anchor:middle}.u{text-anchor:start}.u2{text-anchor:end}
.g{stroke:var(--grid);fill:none}.a,.t{stroke:var(--soft);fill:none;stroke-opacity:.55}
.c{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}
circle{fill:currentColor}
.m{stroke:currentColor;stroke-width:1.2;stroke-dasharray:2 4;stroke-opacity:.7;fill:none}
.raw{stroke-opacity:.38;stroke-width:1.1}
.h rect{fill:none;pointer-events:all}
.h path,.h text{visibility:hidden;pointer-events:none}
.h:hover path,.h:hover text{visibility:visible}
.h path{stroke:var(--soft);stroke-width:.8;fill:none}
.h text{fill:currentColor;font-size:11px;paint-order:stroke;stroke:var(--card);stroke-width:4px;
stroke-linejoin:round}
.h tspan{fill:currentColor}
.e{text-anchor:end}
.whole{stroke:var(--ink);stroke-width:1.1}
.r0{color:var(--r0)}.r1{color:var(--r1)}.r2{color:var(--r2)}.r3{color:var(--r3)}.r4{color:var(--r4)}
.r5{color:var(--r5)}.r6{color:var(--r6)}.r7{color:var(--r7)}
.p0{fill:var(--p0);color:var(--p0)}.p1{fill:var(--p1);color:var(--p1)}.p2{fill:var(--p2);color:var(--p2)}
.p3{fill:var(--p3);color:var(--p3)}
.p4{fill:var(--p4);color:var(--p4)}.p5{fill:var(--p5);color:var(--p5)}.p6{fill:var(--p6);color:var(--p6)}
.p7{fill:var(--p7);color:var(--p7)}.p8{fill:var(--p8);color:var(--p8)}.p9{fill:var(--p9);color:var(--p9)}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th,td{text-align:left;padding:7px 12px;border-top:1px solid var(--line);vertical-align:top}
tr:first-child>th{border-top:0}
th{font-weight:600;color:var(--soft);white-space:nowrap}
td.num,th.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td:first-child{min-width:8.5em}
.runs{table-layout:fixed;min-width:max-content}
.runs th,.runs td{width:260px;max-width:260px;white-space:normal;overflow-wrap:anywhere;
font-variant-numeric:tabular-nums}
.runs td{padding-right:16px}
.runs th:first-child{position:sticky;left:0;background:var(--card);width:150px}
.runs tr:first-child th{color:inherit}
td.w{overflow-wrap:anywhere;min-width:9em}
td.time{white-space:nowrap;font-variant-numeric:tabular-nums}
.error td.w,.warning td.w{color:var(--bad)}
.notes{border-left:3px solid var(--bad);padding:2px 0 2px 12px;margin:14px 0;overflow-wrap:anywhere}
details{margin:12px 0}
summary{cursor:pointer;font-weight:600;padding:4px 0}
summary .soft{font-weight:400}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}
.card pre{max-height:22em;overflow:auto;background:var(--bg);border-radius:6px;padding:8px 10px;
margin:3px 0 8px}
.label{font-size:12px;color:var(--soft)}
.reward{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px;margin-bottom:6px;
font-variant-numeric:tabular-nums}
.reward b{font-size:14px}
.cut{color:var(--soft)}
@media(max-width:600px){main{padding:16px 12px 48px}h1{font-size:20px}h2{margin-top:32px}
figure,.card{padding:10px 10px 8px}
svg text{font-size:11.5px}th,td{padding:6px 9px}
.facts{grid-template-columns:1fr 1fr}
.runs{font-size:12.5px}.runs th,.runs td{width:133px;padding:6px}.runs th:first-child{width:96px}
.events tr{display:block;border-top:1px solid var(--line);padding:6px 0}.events tr:first-child{display:none}
.events td{display:inline-block;border:0;padding:0 9px}.events td.w{display:block}}
@media print{body{background:#fff}figure,.card{break-inside:avoid}}
)CSS";

}  // namespace temper
