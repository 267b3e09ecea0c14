"""Range reduction of angles to quarter turns and a remainder between -pi / 4 and pi / 4, in LLVM IR.

Up to 2**17 quarters are subtracted by multiply-adds with pi / 2 in three parts. For larger angles (Payne and Hanek,
"Radian reduction for trigonometric functions", 1983) the angle's 53 bits are multiplied by the 192 bits of 2 / pi that
decide the last quarters and the remainder.
"""

from __future__ import annotations

import struct

from tilewright.target.codegen.llvm.builder import Unit

RESULT = "{ double, i32 }"
NAME = ".tw.reduced_angle"
_LARGE, _LIMIT = ".tw.reduced_large_angle", 131072.0
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_TWO_OVER_PI = (
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73e"
    "e88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b7"
    "4f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361da9e391615ee61b08"
)
"""The first 1344 bits behind the point."""


def _number(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _usual() -> str:
    """Return ``%r3``: ``%x`` minus ``%n`` quarters."""
    lines, rest = [], "%x"
    for i, part in enumerate(_HALF_PI):
        lines.append(f"  %r{i + 1} = call double @llvm.fma.f64(double %minus, double {_number(part)}, double {rest})")
        rest = f"%r{i + 1}"
    return "\n".join(lines)


def define(unit: Unit) -> str:
    """The function ``RESULT (double)``; defined in ``unit`` at first use."""
    if NAME in unit.definitions:
        return NAME
    for name, params in (("fma", "double, double, double"), ("nearbyint", "double"), ("fabs", "double")):
        unit.declare(f"llvm.{name}.f64", "double", params)
    words = [_TWO_OVER_PI[i : i + 16] for i in range(0, len(_TWO_OVER_PI), 16)]
    table = unit.constant(f"[{len(words)} x i64] [{', '.join(f'i64 u0x{word}' for word in words)}]", 8)
    unit.definitions[_LARGE] = _large(table)
    unit.definitions[NAME] = f"""define internal {RESULT} @{NAME}(double %x) alwaysinline nounwind {{
start:
  %size = call double @llvm.fabs.f64(double %x)
  %is_large = fcmp ogt double %size, {_number(_LIMIT)}
  br i1 %is_large, label %large, label %usual
large:
  %all = call {RESULT} @{_LARGE}(double %x)
  br label %done
usual:
  %turns = fmul double %x, {_number(0.6366197723675814)}
  %n = call double @llvm.nearbyint.f64(double %turns)
  %minus = fneg double %n
{_usual()}
  %is_number = fcmp ord double %x, %x
  %safe = select i1 %is_number, double %n, double {_number(0.0)}
  %k = fptosi double %safe to i32
  %first = insertvalue {RESULT} poison, double %r3, 0
  %both = insertvalue {RESULT} %first, i32 %k, 1
  br label %done
done:
  %result = phi {RESULT} [ %all, %large ], [ %both, %usual ]
  ret {RESULT} %result
}}"""
    return NAME


def _large(table: str) -> str:
    """Reduce ``x`` = m * 2**e; the window of 2 / pi begins 2 bits above the bit where m's last bit is one
    quarter turn.
    """
    words = []
    for i in range(4):
        words.append(f"""  %i{i} = add i32 %word, {i}
  %p{i} = getelementptr i64, ptr {table}, i32 %i{i}
  %w{i} = load i64, ptr %p{i}
  %z{i} = zext i64 %w{i} to i256
  %s{i} = shl i256 %z{i}, {64 * (3 - i)}""")
    loads = "\n".join(words)
    return f"""define internal {RESULT} @{_LARGE}(double %x) noinline cold nounwind {{
  %bits = bitcast double %x to i64
  %shifted = lshr i64 %bits, 52
  %field = and i64 %shifted, 2047
  %field32 = trunc i64 %field to i32
  %e = sub i32 %field32, 1075
  %low52 = and i64 %bits, 4503599627370495
  %m = or i64 %low52, 4503599627370496
  %over = sub i32 %e, 2
  %beyond = icmp sgt i32 %over, 0
  %start0 = select i1 %beyond, i32 %over, i32 0
  %no_end = icmp eq i32 %field32, 2047
  %start = select i1 %no_end, i32 0, i32 %start0
  %below = sub i32 2, %e
  %short = select i1 %beyond, i32 0, i32 %below
  %word = lshr i32 %start, 6
  %off = and i32 %start, 63
{loads}
  %a1 = or i256 %s0, %s1
  %a2 = or i256 %s2, %s3
  %a3 = or i256 %a1, %a2
  %off256 = zext i32 %off to i256
  %a4 = shl i256 %a3, %off256
  %window = lshr i256 %a4, 64
  %m256 = zext i64 %m to i256
  %product = mul i256 %window, %m256
  %short256 = zext i32 %short to i256
  %placed = lshr i256 %product, %short256
  %q0 = lshr i256 %placed, 190
  %q1 = trunc i256 %q0 to i32
  %q2 = and i32 %q1, 3
  %rest = shl i256 %placed, 66
  %up256 = lshr i256 %rest, 255
  %up = trunc i256 %up256 to i32
  %q = add i32 %q2, %up
  %high256 = ashr i256 %rest, 192
  %high = trunc i256 %high256 to i64
  %low256 = lshr i256 %rest, 128
  %low = trunc i256 %low256 to i64
  %h0 = sitofp i64 %high to double
  %l0 = uitofp i64 %low to double
  %h = fmul double %h0, {_number(2.0**-64)}
  %l = fmul double %l0, {_number(2.0**-128)}
  %f = fadd double %h, %l
  %r0 = fmul double %f, {_number(_HALF_PI[1])}
  %r1 = call double @llvm.fma.f64(double %f, double {_number(_HALF_PI[0])}, double %r0)
  %negative = icmp slt i64 %bits, 0
  %r2 = fneg double %r1
  %q3 = sub i32 0, %q
  %r3 = select i1 %negative, double %r2, double %r1
  %q4 = select i1 %negative, i32 %q3, i32 %q
  %r = select i1 %no_end, double {_number(float("nan"))}, double %r3
  %first = insertvalue {RESULT} poison, double %r, 0
  %both = insertvalue {RESULT} %first, i32 %q4, 1
  ret {RESULT} %both
}}"""
