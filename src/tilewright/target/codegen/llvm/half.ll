; Conversions between float16 and float32 in integer arithmetic, by the names that LLVM calls where the processor has
; no instruction for them.

define weak hidden float @__extendhfsf2(half %x) {
entry:
  %h16 = bitcast half %x to i16
  %h = zext i16 %h16 to i32
  %sign16 = and i32 %h, 32768
  %sign = shl i32 %sign16, 16
  %rest = and i32 %h, 32767
  %isinf = icmp uge i32 %rest, 31744
  %shifted = shl i32 %rest, 13
  %bias = select i1 %isinf, i32 1879048192, i32 939524096
  %normal = add i32 %shifted, %bias
  %issub = icmp ult i32 %rest, 1024
  %asint = uitofp i32 %rest to float
  %tiny = fmul float %asint, 0x3E70000000000000
  %tinybits = bitcast float %tiny to i32
  %magnitude = select i1 %issub, i32 %tinybits, i32 %normal
  %bits = or i32 %magnitude, %sign
  %result = bitcast i32 %bits to float
  ret float %result
}

define weak hidden half @__truncsfhf2(float %x) {
entry:
  %bits = bitcast float %x to i32
  %sign32 = lshr i32 %bits, 16
  %sign = and i32 %sign32, 32768
  %rest = and i32 %bits, 2147483647
  %isnan = icmp ugt i32 %rest, 2139095040
  %toolarge = icmp uge i32 %rest, 1199570944
  %issub = icmp ult i32 %rest, 947912704
  br i1 %issub, label %subnormal, label %normal
subnormal:
  %magnitude = bitcast i32 %rest to float
  %sum = fadd float %magnitude, 5.000000e-01
  %sumbits = bitcast float %sum to i32
  %small = sub i32 %sumbits, 1056964608
  br label %join
normal:
  %odd0 = lshr i32 %rest, 13
  %odd = and i32 %odd0, 1
  %half = add i32 %odd, 4095
  %rounded = add i32 %rest, %half
  %rebias = sub i32 %rounded, 939524096
  %large = lshr i32 %rebias, 13
  br label %join
join:
  %value = phi i32 [ %small, %subnormal ], [ %large, %normal ]
  %limited = select i1 %toolarge, i32 31744, i32 %value
  %checked = select i1 %isnan, i32 32256, i32 %limited
  %all = or i32 %checked, %sign
  %all16 = trunc i32 %all to i16
  %result = bitcast i16 %all16 to half
  ret half %result
}

define weak hidden half @__truncdfhf2(double %x) {
entry:
  ; rounding to odd first makes the second rounding exact
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %exact = fcmp oeq double %back, %x
  %isnan = fcmp uno double %x, %x
  %keep = or i1 %exact, %isnan
  %nearbits = bitcast float %near to i32
  %abs.x = call double @llvm.fabs.f64(double %x)
  %abs.back = call double @llvm.fabs.f64(double %back)
  %above = fcmp ogt double %abs.back, %abs.x
  %down = sub i32 %nearbits, 1
  %toward = select i1 %above, i32 %down, i32 %nearbits
  %oddbits = or i32 %toward, 1
  %chosen = select i1 %keep, i32 %nearbits, i32 %oddbits
  %single = bitcast i32 %chosen to float
  %result = call half @__truncsfhf2(float %single)
  ret half %result
}

declare double @llvm.fabs.f64(double)
