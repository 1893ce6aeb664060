"""The table of mathematical answers that are equal, or not: every gold answer with other notations of it and with
what must earn nothing (hedges, other units, digits that a blank parts, near values ...).
    python3 tools/golden/golden_math.py        # writes tests/golden/rl/math_pairs.jsonl: {"gold", "response", "want": 0 or 1}
tools/math_sweep.py asks the program, and math-verify, about the same table."""

import json
import os

PAIRS = []


def response(gold, text, want):
    if (gold, text, want) not in PAIRS:
        PAIRS.append((gold, text, want))


def equal(gold, *answers):
    for answer in answers:
        response(gold, "\\boxed{" + answer + "}", 1)


def unequal(gold, *answers):
    for answer in answers:
        response(gold, "\\boxed{" + answer + "}", 0)


equal("7", "7", "7.0", "07", "+7", "(7)", "{7}", "7.", r"\text{7}", r"\mathbf{7}", r"\large 7", r"{\large 7}",
      r"\textbf{7}", r"\mathrm{7}", "$7$", r"\(7\)", r"\displaystyle 7", r"\color{red}{7}",
      r"\textcolor{blue}{7}", "x=7", "x = 7", r"x \approx 7", "= 7", "14/2", r"\frac{14}{2}", "3+4", r"7\%",
      r"7^\circ", "7°", "7 units", r"7\text{ units}", r"7\text{ apples}", "７", "|−7|", r"\sqrt{49}",
      r"7 \text{ students}", "n=7", "7,")
unequal("7", "-7", "70", "7x", "7.1", "7,7", "7, 8", "7 or 8", r"7\text{ or }8", r"7\text{ and }8",
        r"7 \lor 8", "7;8", "6,7", "(7,8)", "[7]", r"7\text{ dozen}", r"7\text{ million}",
        r"7\text{ hundred}", r"\text{not }7", "not 7", r"\neq 7", r"x\ne 7", "7i", "7^2", "7!", "7 7", "7-8",
        "x=7=8", r"7 \pm 1", r"\pm 7", "<7", "x>7", "7?", r"7\text{ (or }8)", r"7\text{, maybe 8}", "7_8",
        r"\sqrt{7}", "1/7", r"7\text{ is false}", "77", "0.7", r"7\times 10", r"7\approx 8", "either 7 or 8",
        r"\{7,8\}", "7 to 8", "7...", r"7\text{ less than }x")
equal("-7", "−7", "- 7", "-(7)", r"\left(-7\right)", "-7.00", "x=-7", r"\frac{-14}{2}", r"-\frac{14}{2}",
      r"\frac{14}{-2}")
equal("1000", "1,000", "1 000", r"1\,000", "1{,}000", r"1,\!000", "10^3", r"1\cdot 10^3", r"10 \times 100",
      "1000.00", r"\$1,000", r"\$1000")
unequal("1000", "1,00", "1.000", "100", "10^4", "1, 000", "(1,000)", "1 0 0 0", "10 00")
equal("1234567", "1,234,567", "1 234 567", r"1\,234\,567", "1{,}234{,}567")
unequal("1234567", "1,234,56", "1234,567", "1 234 56")
equal("0.5", ".5", "1/2", r"\frac12", r"\dfrac{1}{2}", r"\tfrac12", "0.50", "½", "2/4", r"\frac{0.5}{1}",
      r"50\%", "2^{-1}", "2^-1", r"\frac{1}{2}", r"1 \div 2", "1÷2", "x=0.5")
unequal("0.5", "5", "0.05", "0,5", "-0.5", "0. 5", "1/ 20", r"\frac{2}{1}", "0.4999", "0.500001")
equal(r"\frac{7}{2}", "3 1/2", r"3\frac12", r"3\frac{1}{2}", "3.5", r"3 \frac{1}{2}", "3½", r"3+\frac12",
      "7/2", r"\frac{7}2", r"\frac72", "(7/2)", r"\left(\frac{7}{2}\right)", r"7\cdot\frac12",
      r"\frac12\cdot 7", "{7}/{2}", r"\frac{7.0}{2.0}", r"x=\frac{7}{2}", r"x=\frac{7}{2}=3.5", "3~1/2",
      r"3\ 1/2")
unequal(r"\frac{7}{2}", r"\frac{2}{7}", "31/2", r"3\cdot\frac12", "3/2", "72", "7 2", "3 2/1", "3, 1/2",
        "3 - 1/2", "7/ 3", r"3\frac{2}{1}", "2/7")
equal(r"-\frac{7}{2}", "-3 1/2", r"-3\frac12", "-7/2", r"\frac{-7}{2}", r"\frac{7}{-2}", "-3.5",
      r"-\left(\frac72\right)", r"−\frac{7}{2}")
unequal(r"-\frac{7}{2}", "-3 + 1/2", "7/2", "-31/2")
unequal("46", "4 6", r"4\quad 6", "4\n6", r"4\;6", r"4\text{ }6", r"\mathbf{4}\mathbf{6}", "4.6", "4,6",
        "4~6", r"4\,6", r"4\cdot 6", "64")
equal(r"\frac{1}{3}", r"0.\overline{3}", r"0.\bar{3}", r".\overline{3}", "1/3", r"0.\bar3", "3^{-1}",
      r"\frac{1}{3} \approx 0.33", "⅓", r"\frac26")
unequal(r"\frac{1}{3}", "0.33", "0.3333333", "0.3", "3", r"0.\overline{33}1", r"33\%")
equal(r"\frac16", r"0.1\overline{6}", "1/6")
unequal(r"\frac16", r"0.\overline{16}", "0.1666666667")
equal("10^{-3}", "0.001", "1/1000", r"\frac{1}{10^3}", "10^-3", r"1\times 10^{-3}", "{10}^{-3}")
unequal("10^{-3}", "-1000", "10^3", "-10^3", "0.01", "10-3")
equal("120", "5!", "2*60", "120.", r"1.2\times 10^2", r"1.2 \cdot 10^{2}", "120 people")
unequal("120", "120!", "12.0", "12 0")
equal("1024", "2^{10}", "2^10", "1{,}024", "4^5")
unequal("1024", "2^1 0", "2^{1}0", "10^2")
equal(r"3\sqrt{5}", r"\sqrt{45}", r"\sqrt5\cdot 3", r"3 \sqrt 5", r"3*\sqrt{5}", "3√5", "3√(5)", "3sqrt(5)",
      "3*sqrt(5)", r"3\cdot 5^{1/2}", r"3\cdot5^{\frac12}", r"\sqrt{5}\times3", r"{3}{\sqrt{5}}",
      r"3\sqrt[2]{5}", r"(3\sqrt5)", r"\frac{15}{\sqrt5}")
unequal(r"3\sqrt{5}", r"\sqrt{15}", r"\sqrt[3]{5}", r"3+\sqrt5", r"5\sqrt3", r"-3\sqrt5", r"3\cdot 5",
        "6.708", r"\sqrt{3\cdot5}", "3 5")
equal(r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt2}", r"\sqrt{2}/2", "√2/2", r"\frac12\sqrt2", r"\sqrt{\frac12}",
      r"\sqrt{0.5}", r"0.5\sqrt2", "2^{-1/2}", r"\dfrac{\sqrt 2}2", r"\sqrt{1/2}")
unequal(r"\frac{\sqrt{2}}{2}", r"\sqrt{\frac{2}{2}}", r"\frac{2}{\sqrt{2}}", "0.7071", r"\sqrt2",
        r"\frac{\sqrt{2}}{-2}")
equal(r"1+\sqrt{2}", r"\sqrt2+1", r"\frac{1}{\sqrt2-1}", "1+2^{1/2}", "1 + √2", r"\frac{2+2\sqrt2}{2}")
unequal(r"1+\sqrt{2}", r"1-\sqrt2", r"\sqrt{3}", r"\sqrt{1+2}", r"2\sqrt{1}", "2.414", r"1\pm\sqrt2")
equal(r"\frac{\pi}{3}", r"\pi/3", r"\frac13\pi", "π/3", r"\frac{1}{3}\cdot\pi", r"\frac{\pi}3", "pi/3",
      r"\frac\pi3", r"\frac{2\pi}{6}", r"\left(\frac{\pi}{3}\right)", r"\theta=\frac{\pi}{3}",
      r"\pi \cdot \frac{1}{3}", "(1/3)π")
unequal(r"\frac{\pi}{3}", r"3/\pi", r"3\pi", r"\frac{\pi}{6}", "60", "1.047", r"\pi^3", r"\pi-3",
        r"\frac{1}{3\pi}")
equal(r"8\pi", r"\pi\cdot 8", r"8 \times \pi", "8π", "8pi", "8*pi", r"8\pi\text{ cm}",
      r"8\pi\text{ square units}", r"2\cdot4\pi", "8 π", r"4\pi+4\pi")
unequal(r"8\pi", r"8+\pi", r"\pi^8", "8", "25.13", r"8\pi^2", r"8\pi i", r"\frac{8}{\pi}", "8p")
equal("2+3i", "3i+2", r"2+3\cdot i", "2 + 3 i", r"2+i\cdot3", "(2+3i)", r"\left(2+3i\right)", "z=2+3i")
unequal("2+3i", "2-3i", "3+2i", "5i", "2+3", "-2+3i")
equal("e^2", "e^{2}", r"e\cdot e", "{e}^2")
unequal("e^2", "2e", "e2", "e^{-2}", "7.389")
equal(r"(\frac{1}{2},3)", "(0.5,3)", "(1/2, 3)", r"\left(\frac12, 3\right)", r"(x,y)=(\frac12,3)",
      r"(\frac24,3.0)", "( 0.5 , 3 )", r"\left( \tfrac{1}{2},3 \right)", "（1/2，3）", "(a,b) = (1/2,3)",
      "(2^{-1},3)")
unequal(r"(\frac{1}{2},3)", r"(3,\frac12)", r"[\frac12,3]", r"(\frac12,3]", r"(-\frac12,3)", r"(\frac12,3,0)",
        r"\frac12", r"(\frac12,-3)", r"\{\frac12,3\}", "(12,3)", "0.53", "(0.5,3),(1,1)")
equal("[0.25,2)", r"[\frac14,2)", r"\left[\frac{1}{4},2\right)", r"x\in[1/4,2)", "[0.25, 2.0)",
      r"\frac14\le x<2", r"2>x\ge 0.25", r"0.25\leq x < 2")
unequal("[0.25,2)", "(0.25,2)", "[0.25,2]", "(0.25,2]", "[2,0.25)", "0.25<x<2", "[0.25,3)", "0.25,2")
equal(r"(-\infty,1)\cup(2,\infty)", r"(2,\infty)\cup(-\infty,1)", r"(-\infty,1)\cup(2,+\infty)",
      "(-∞,1)∪(2,∞)", r"\left(-\infty,1\right)\cup\left(2,\infty\right)", r"x\in(-\infty,1)\cup(2,\infty)")
unequal(r"(-\infty,1)\cup(2,\infty)", r"(-\infty,1]\cup(2,\infty)", r"(-\infty,1)\cap(2,\infty)",
        r"(-\infty,1)", r"(-\infty,2)\cup(1,\infty)", r"(-\infty,1),(2,\infty)")
equal(r"\{4,9\}", r"\{9,4\}", r"\left\{4,9\right\}", r"\lbrace 4,9 \rbrace", r"\{4, 9\}",
      r"\{\frac{8}{2},9\}", r"\{2^2,3^2\}", r"x\in\{4,9\}", r"\{ 9.0, 4 \}")
unequal(r"\{4,9\}", r"\{4\}", r"\{4,9,1\}", "(4,9)", "[4,9]", r"\{-4,9\}", "49", "4.9")
equal("4,9", "4, 9", "4 or 9", "4 and 9", r"4\text{ and }9", r"4 \text{ or } 9", "x=4,9",
      r"x=4\text{ or }x=9", "x=4, x=9", "4;9", "x_1=4,x_2=9", r"4,\ 9", "4,9.0", r"x = 4 \text{ and } x = 9",
      r"4,\text{ and }9", "4,9.")
unequal("4,9", "4", "9", "4,8", "4.9", "49", "4,9,1", "4 9", "13", "x=4, y=8", "4 or 9 or 10", "4+9")
equal("1,2,3", "1, 2, 3", "1, 2, and 3", "1, 2 and 3", r"1, 2 \text{ and } 3", r"1,2,\text{ and }3",
      r"1, \; 2, \; 3", r"1,2\text{, and }3", "1; 2; 3", "1,2,3.")
unequal("1,2,3", "1,2", "123", "1,2,4", "1,2,3,4", "3,2,1,0", "1.2.3")
equal(r"\pm 2", "±2", "2,-2", "-2,2", r"-2\text{ or }2", r"\{-2,2\}", r"x=\pm 2", r"x=2\text{ or }x=-2",
      r"\pm\sqrt4")
unequal(r"\pm 2", "2", "-2", r"\pm 4", "4", "2,-3")
equal(r"3\pm2\sqrt{2}", r"3\pm\sqrt{8}", r"3+2\sqrt2, 3-2\sqrt2", r"x=3\pm2\sqrt2", "3 ± 2√2")
unequal(r"3\pm2\sqrt{2}", r"3+2\sqrt2", r"-3\pm2\sqrt2", r"2\pm3\sqrt2")
equal(r"\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}", r"\begin{pmatrix} 0.5 \\ 3 \end{pmatrix}",
      r"\begin{bmatrix} \frac12 \\ 3 \end{bmatrix}", r"\left(\begin{array}{c} 1/2 \\ 3 \end{array}\right)",
      r"\begin{pmatrix} 1/2 \\ 3 \\ \end{pmatrix}", r"\begin{pmatrix}\frac{1}{2}\\3\end{pmatrix}",
      r"\begin{matrix} 1/2 \\ 3 \end{matrix}", r"\left[\begin{matrix} 1/2 \\ 3 \end{matrix}\right]")
unequal(r"\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}", r"\begin{pmatrix} 3 \\ 1/2 \end{pmatrix}",
        r"\begin{pmatrix} 1/2 & 3 \end{pmatrix}", r"\begin{pmatrix} 1/2 \\ -3 \end{pmatrix}",
        r"\begin{pmatrix} 1/2 \\ 3 \\ 0 \end{pmatrix}", r"\begin{vmatrix} 1/2 \\ 3 \end{vmatrix}")
equal(r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}",
      r"\left(\begin{array}{cc}1&2\\3&4\end{array}\right)",
      r"\begin{pmatrix} 1.0 & 4/2 \\ 3 & 2^2 \end{pmatrix}",
      r"A=\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}")
unequal(r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}",
        r"\begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix}", r"\begin{pmatrix} 1 & 2 & 3 & 4 \end{pmatrix}",
        "1,2,3,4")
equal("x^2+3x", "3x+x^2", r"x^2+3\cdot x", "{x}^2+3x", "x^{2}+3x", "x² + 3x", "y=x^2+3x", "f(x)=x^2+3x",
      "x^2 + 3 x", r"x\cdot x+3x", "x^2+3*x", "x**2+3*x", r"x^2+x\cdot3", "(x^2+3x)", "x^2+x+2x")
unequal("x^2+3x", "x^2-3x", "x^3+3x", "x^2+3", "x2+3x", "x^2+3y", "2x+3x", "(x+3)^2", "x^{2+3x}", "x^2+3x+1",
        "x^2+3x=0", "-x^2+3x")
equal(r"\frac{x+1}{2}", "(x+1)/2", r"\frac12(x+1)", r"\frac{x}{2}+\frac12", "0.5x+0.5", r"\frac{1+x}{2}",
      r"\frac{1}{2}x+\frac{1}{2}")
unequal(r"\frac{x+1}{2}", "x+1/2", r"\frac{2}{x+1}", "x+0.5", r"\frac{x+1}{-2}", r"\frac{x-1}{2}")
equal("(x+1)(x-2)", "(x-2)(x+1)", r"(x+1)\cdot(x-2)", r"\left(x+1\right)\left(x-2\right)", "(1+x)(x-2)",
      "(x + 1)*(x - 2)", "-(x+1)(2-x)")
unequal("(x+1)(x-2)", "(x-1)(x+2)", "(x+1)(x+2)", "x+1,x-2", "(x+1)+(x-2)", "(x+1)/(x-2)")
equal(r"\frac{a}{b}", "a/b", "{a}/{b}", r"a\cdot b^{-1}", r"\dfrac ab", r"\frac{2a}{2b}")
unequal(r"\frac{a}{b}", "b/a", "ab", "a-b", r"\frac{a}{2b}")
equal(r"2\sin x\cos x", r"2\cos x\sin x", r"2\sin(x)\cos(x)", r"2 \cdot \sin x \cdot \cos x",
      r"2\sin{x}\cos{x}")
unequal(r"2\sin x\cos x", r"\sin x\cos x", r"2\sin x+\cos x", r"2\sin x\sin x", r"2\sin y\cos x")
equal(r"\log_2 3", r"\log_{2}3", r"\log_2(3)", r"\log_{2}{3}")
unequal(r"\log_2 3", r"\log_3 2", r"\log 3", r"\ln 3", r"\log 23", "1.585")
equal("x>5", "5<x", r"x \gt 5", r"(5,\infty)", r"x\in(5,\infty)", r"(5,+\infty)", "x>5.0")
unequal("x>5", "x<5", r"x\ge5", "x=5", "5", "5>x", "y>5", "x>-5", r"[5,\infty)", "x>50")
equal(r"x\ge 5", "x>=5", "x≥5", r"x\geq 5", r"5\le x", r"x \geqslant 5", r"[5,\infty)")
equal("y=2x+3", "y = 2x + 3", "y=3+2x", "2x+3", r"y=2\cdot x+3", "f(x)=2x+3")
unequal("y=2x+3", "y=2x-3", "y=3x+2", "z=2x+3", "y=-2x+3", "x=2y+3")
equal("x+y=5", "y+x=5", "x + y = 5", "5=x+y", "x+y-5=0", "2x+2y=10")
unequal("x+y=5", "x-y=5", "x+y=6", "5", "x=5", "xy=5", "x+y")
equal(r"15\text{ cm}", "15", "15 cm", r"15\mathrm{cm}", r"{15\text{ cm}}", r"15\,\text{cm}",
      r"15 \text{ centimeters}", r"15\mbox{ cm}", r"15~\mathrm{cm}", r"\text{15 cm}",
      r"15\text{ centimetres}")
unequal(r"15\text{ cm}", r"15\text{ km}", r"15\text{ cm}^2", "15 m", r"15\text{ mm}", r"15\text{ feet}",
        r"15\text{ cm or }16\text{ cm}", r"16\text{ cm}", "15 inches", r"15\text{ square cm}")
equal(r"12\text{ ft}^2", "12", "12 square feet", r"12\text{ square feet}", r"12\text{ ft}^{2}",
      r"12\text{ sq. ft}", "12 ft^2", "12 ft²", r"12\text{ square units}", r"12\text{ feet squared}")
unequal(r"12\text{ ft}^2", r"12\text{ ft}", r"12\text{ ft}^3", "12 cubic feet", r"12\text{ square inches}",
        r"12\text{ units}")
equal("30", "30 mph", r"30\text{ miles per hour}", r"30\text{ mi/h}", "30 degrees", r"30^{\circ}", r"30\%",
      "30 percent", r"\$30", "30 dollars", r"30\text{ minutes}", "£30", r"30\text{ km/h}")
unequal("30", r"30\text{ dozen}", r"30\text{ thousand}", r"30\text{ percent less}", r"30\text{ or more}",
        r"30\text{ at least}", r"\text{about }30\text{ to }40", r"30\text{ minutes or 1 hour}",
        r"30\text{ }40", r"\$30\text{ to }\$40", r"30\text{ negative}", r"30\text{ squared}",
        r"30\text{ plus }1")
equal(r"\text{Monday}", "monday", "Monday", r"\text{monday}", "MONDAY", r"\textbf{Monday}",
      r"\mathrm{Monday}", r"\text{ Monday }", "Monday.")
unequal(r"\text{Monday}", "Tuesday", r"\text{Monday or Tuesday}", r"\text{not Monday}", "Mon", "Sunday",
        r"\text{Monday, Tuesday}", "yadnoM")
equal(r"\text{Yes}", "yes", "YES", r"\text{yes}", "Yes.")
unequal(r"\text{Yes}", "no", "yes or no", "Yes, no", "not yes", "y")
equal(r"\text{No solution}", "no solution", r"\text{no solution}", "No Solution", r"\text{ No solution.}")
unequal(r"\text{No solution}", "solution", "no solutions? 5", "5", r"\text{one solution}")
unequal(r"\text{east}", r"\text{seat}", "west", r"\text{east or west}", r"\text{southeast}")
unequal(r"\text{no}", r"\text{on}", "yes")
equal("C", "(C)", r"\text{C}", r"\text{(C)}", r"\mathrm{C}", r"\textbf{C}", r"\textbf{(C)}", "C.",
      r"\mathbf{C}")
unequal("C", "B", "c", "C, D", "C or D", "CD", "(C, D)", r"\text{not C}", r"\text{B or C}")
equal(r"\mathbb{R}", r"\mathbb R", "ℝ", r"x\in\mathbb{R}")
unequal(r"\mathbb{R}", r"\mathbb{Q}", r"\varnothing", r"\mathbb{R}\setminus\{0\}")
equal(r"\varnothing", r"\emptyset", "∅", r"\{\}")
unequal(r"\varnothing", "0", r"\{0\}", "o")
equal(r"\binom{5}{2}", r"\dbinom{5}{2}", r"{5 \choose 2}", r"\binom52", r"\tbinom{5}{2}")
unequal(r"\binom{5}{2}", r"\binom{2}{5}", r"\frac{5}{2}", "52")
equal("101_2", "(101)_2", "101_{2}", "101_{(2)}")
unequal("101_2", "101", "101_3", "1012", "110_2")
equal("|x|", r"\lvert x\rvert", r"\left|x\right|", r"\vert x \vert", "|{x}|")
unequal("|x|", "x", "-x", "|y|", "|x|+1")
equal("1:2", "1 : 2", "1: 2")
unequal("1:2", "2:1", "1,2", "12")

# whole responses, and notations that were once read wrong
response(r"\frac{31}{2}", r"\boxed{3 1/2}", 0)
response("15.5", r"\boxed{3 1/2}", 0)
response(r"\frac{121}{3}", r"\boxed{12 1/3}", 0)
response("72", r"\boxed{7 \quad 2}", 0)
response("58", r"\boxed{5\;8}", 0)
response("39", "\\boxed{3\n9}", 0)
response("64", r"\boxed{6 \text{ } 4}", 0)
response("8.2", r"\boxed{8. 2}", 0)
response("1200", r"\boxed{1 200}", 1)
response("1200", r"\boxed{1\,200}", 1)
response("46", r"\boxed{4\!6}", 1)
response("5", r"\boxed{5\text{ or 6}}", 0)
response("5", r"\boxed{5\text{ (or 6)}}", 0)
response("8", r"\boxed{8\text{ is wrong}}", 0)
response("3", r"\boxed{3\text{ million}}", 0)
response("3", r"\boxed{3\text{ thousand}}", 0)
response("2", r"\boxed{2\text{ dozen}}", 0)
response("40", r"\boxed{40\text{ percent less}}", 0)
response(r"6\text{ inches}", r"\boxed{6\text{ inches squared}}", 0)
response(r"9\text{ cm}", r"\boxed{9\text{ km}}", 0)
response(r"9\text{ cm}", r"\boxed{9\text{ cm}}", 1)
response(r"9\text{ cm}", r"\boxed{9}", 1)
response("9", r"\boxed{9\text{ cm}}", 1)
response("9", r"\boxed{9\text{ apples}}", 1)
response("9", r"\boxed{9\text{ square feet}}", 1)
response(r"\frac{1}{2}", r"\boxed{\left(\frac{1}{2}\right)}", 1)
response(r"\frac{1}{2}", r"\boxed{{1}/{2}}", 1)
response(r"\frac{1}{2}", r"\boxed{(1/2)}", 1)
response(r"-\frac{3}{4}", r"\boxed{-\left(\frac34\right)}", 1)
response(r"(\frac{1}{2},3)", r"\boxed{(\frac{2}{4},3)}", 1)
response(r"\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}", r"\boxed{\begin{bmatrix} 1/2 \\ 3 \end{bmatrix}}", 1)
response(r"\frac{\pi}{3}", r"\boxed{\frac{1}{3}\pi}", 1)
response(r"3\sqrt{5}", r"\boxed{3\cdot\sqrt{5}}", 1)
response(r"3\sqrt{5}", r"\boxed{3 \times \sqrt{5}}", 1)
response(r"3\sqrt{5}", r"\boxed{3\left(\sqrt{5}\right)}", 1)
response(r"8\pi", r"\boxed{8\cdot\pi}", 1)
response(r"8\pi", r"\boxed{{8}\pi}", 1)
response("1,2,3", r"\boxed{1, 2, \text{ and } 3}", 1)
response("4,9", r"\boxed{x_1=4, x_2=9}", 1)
response(r"x\ne 5", r"\boxed{x≠5}", 1)
response(r"x\ne 5", r"\boxed{x\not=5}", 1)
response("|x|", r"\boxed{\vert x\vert}", 1)
response(r"\sqrt[3]{2}", r"\boxed{\sqrt[3]2}", 1)
response(r"0.\overline{3}", r"\boxed{0.\bar{3}}", 1)
response(r"0.\overline{3}", r"\boxed{.\overline{3}}", 1)
response("10000", r"\boxed{10^4}", 1)
response("11", r"\boxed{x = 5 + 6 = 11}", 1)
response("11", r"\boxed{x \approx 11}", 1)
response("7", r"\boxed{\boldsymbol{7}}", 1)
response("7", r"\boxed{\bm{7}}", 1)
response("7", r"\boxed{\underline{7}}", 1)
response("7", r"\boxed{\color{blue}{7}}", 1)
response("7", r"\boxed{=7}", 1)
response("7", "\\boxed\n{7}", 1)
response("7", r"\framebox{7}", 1)
response(r"(\frac12,3)", r"\boxed{(3,\frac12)}", 0)
response(r"3\sqrt{5}", r"\boxed{5\sqrt{3}}", 0)
response("[0.25,2)", r"\boxed{(\frac14,2)}", 0)
response(r"x\ge 5", r"\boxed{x>5}", 0)


if __name__ == "__main__":
    path = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden", "rl", "math_pairs.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for gold, text, want in PAIRS:
            file.write(json.dumps({"gold": gold, "response": text, "want": want}, ensure_ascii=False) + "\n")
    right = sum(want for _, _, want in PAIRS)
    print(f"{right} equal and {len(PAIRS) - right} unequal pairs in {os.path.normpath(path)}")
