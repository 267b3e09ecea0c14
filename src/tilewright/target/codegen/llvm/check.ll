; The check of a packed function's arguments against their descriptions, and the message when one does not fit.
; Part of every compiled module, once. What it refuses it does not touch.

%Tensor = type { ptr, { i32, i32 }, i32, i32, ptr, ptr, i64 } ; DLTensor, its dtype as one number
%Argument = type { ptr, ptr, i32, i32, i32, i32, i32 } ; name, dims, ndim, dtype, device type, alignment, flags
; flags: 1 a tensor, 2 any strides, 4 any byte offset
; dims: a size, -1 for any, or -2-k for symbol k, which is the same wherever it stands
%Text = type { i32, [1024 x i8] }

@.tw.count = private unnamed_addr constant [12 x i8] c": expected \00"
@.tw.args = private unnamed_addr constant [19 x i8] c" arguments, found \00"
@.tw.argument = private unnamed_addr constant [12 x i8] c": argument \00"
@.tw.expected = private unnamed_addr constant [12 x i8] c": expected \00"
@.tw.found = private unnamed_addr constant [9 x i8] c", found \00"
@.tw.tensor = private unnamed_addr constant [9 x i8] c"a tensor\00"
@.tw.null = private unnamed_addr constant [5 x i8] c"null\00"
@.tw.shape = private unnamed_addr constant [7 x i8] c"shape \00"
@.tw.device = private unnamed_addr constant [13 x i8] c"device type \00"
@.tw.compact = private unnamed_addr constant [46 x i8] c"a compact row-major tensor, found strides of \00"
@.tw.offset = private unnamed_addr constant [22 x i8] c"byte_offset 0, found \00"
@.tw.align = private unnamed_addr constant [17 x i8] c"data aligned to \00"
@.tw.bytes = private unnamed_addr constant [25 x i8] c" bytes, found it off by \00"
@.tw.data = private unnamed_addr constant [23 x i8] c"data, found a null one\00"
@.tw.code = private unnamed_addr constant [11 x i8] c"type code \00"
@.tw.any = private unnamed_addr constant [2 x i8] c"?\00"
@.tw.comma = private unnamed_addr constant [3 x i8] c", \00"
@.tw.open = private unnamed_addr constant [2 x i8] c"(\00"
@.tw.close = private unnamed_addr constant [2 x i8] c")\00"
@.tw.single = private unnamed_addr constant [3 x i8] c",)\00"
@.tw.minus = private unnamed_addr constant [2 x i8] c"-\00"
@.tw.lanes = private unnamed_addr constant [2 x i8] c"x\00"
@.tw.bool = private unnamed_addr constant [5 x i8] c"bool\00"
@.tw.int = private unnamed_addr constant [4 x i8] c"int\00"
@.tw.uint = private unnamed_addr constant [5 x i8] c"uint\00"
@.tw.float = private unnamed_addr constant [6 x i8] c"float\00"
@.tw.handle = private unnamed_addr constant [7 x i8] c"handle\00"
@.tw.bfloat = private unnamed_addr constant [7 x i8] c"bfloat\00"
@.tw.unknown = private unnamed_addr constant [5 x i8] c"type\00"
@.tw.string = private unnamed_addr constant [7 x i8] c"string\00"
@.tw.kinds = private unnamed_addr constant [5 x ptr] [ptr @.tw.int, ptr @.tw.uint, ptr @.tw.float, ptr @.tw.handle, ptr @.tw.bfloat]
@.tw.codes = private unnamed_addr constant [14 x ptr] [ptr @.tw.int, ptr @.tw.uint, ptr @.tw.float, ptr @.tw.handle, ptr @.tw.null, ptr null, ptr null, ptr @.tw.tensor, ptr null, ptr null, ptr null, ptr @.tw.string, ptr null, ptr @.tw.tensor]

define internal void @.tw.put(ptr %text, ptr %s) noinline minsize optsize {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %keep ]
  %p = getelementptr i8, ptr %s, i64 %i
  %c = load i8, ptr %p
  %n = load i32, ptr %text
  %end = icmp eq i8 %c, 0
  %full = icmp sge i32 %n, 1022
  %stop = or i1 %end, %full
  %to = getelementptr %Text, ptr %text, i32 0, i32 1, i32 %n
  br i1 %stop, label %done, label %keep
keep:
  store i8 %c, ptr %to
  %n1 = add i32 %n, 1
  store i32 %n1, ptr %text
  %i1 = add i64 %i, 1
  br label %next
done:
  store i8 0, ptr %to
  ret void
}

define internal void @.tw.number(ptr %text, i64 %value) noinline minsize optsize {
entry:
  %buffer = alloca [24 x i8]
  %last = getelementptr i8, ptr %buffer, i64 23
  store i8 0, ptr %last
  %negative = icmp slt i64 %value, 0
  br i1 %negative, label %minus, label %start
minus:
  call void @.tw.put(ptr %text, ptr @.tw.minus)
  %opposite = sub i64 0, %value
  br label %start
start:
  %size = phi i64 [ %value, %entry ], [ %opposite, %minus ]
  br label %digit
digit:
  %rest = phi i64 [ %size, %start ], [ %quotient, %digit ]
  %at = phi ptr [ %last, %start ], [ %before, %digit ]
  %quotient = udiv i64 %rest, 10
  %units = urem i64 %rest, 10
  %byte = trunc i64 %units to i8
  %char = add i8 %byte, 48
  %before = getelementptr i8, ptr %at, i64 -1
  store i8 %char, ptr %before
  %more = icmp ne i64 %quotient, 0
  br i1 %more, label %digit, label %done
done:
  call void @.tw.put(ptr %text, ptr %before)
  ret void
}

define internal void @.tw.dtype(ptr %text, i32 %dtype) noinline minsize optsize {
entry:
  %code = and i32 %dtype, 255
  %bits8 = lshr i32 %dtype, 8
  %bits = and i32 %bits8, 255
  %lanes = lshr i32 %dtype, 16
  %low = and i32 %dtype, 65535
  %isbool = icmp eq i32 %low, 257
  br i1 %isbool, label %bool, label %other
bool:
  call void @.tw.put(ptr %text, ptr @.tw.bool)
  br label %vector
other:
  %known = icmp ult i32 %code, 5
  %safe = select i1 %known, i32 %code, i32 0
  %cell = getelementptr [5 x ptr], ptr @.tw.kinds, i32 0, i32 %safe
  %kind = load ptr, ptr %cell
  %name = select i1 %known, ptr %kind, ptr @.tw.unknown
  call void @.tw.put(ptr %text, ptr %name)
  %bits64 = zext i32 %bits to i64
  call void @.tw.number(ptr %text, i64 %bits64)
  br label %vector
vector:
  %many = icmp ugt i32 %lanes, 1
  br i1 %many, label %print, label %done
print:
  call void @.tw.put(ptr %text, ptr @.tw.lanes)
  %lanes64 = zext i32 %lanes to i64
  call void @.tw.number(ptr %text, i64 %lanes64)
  br label %done
done:
  ret void
}

; "(2, 3)"; negative sizes are looked up in %symbols, unless that is null.
define internal void @.tw.sizes(ptr %text, ptr %sizes, i32 %count, ptr %symbols) noinline minsize optsize {
entry:
  call void @.tw.put(ptr %text, ptr @.tw.open)
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %i1, %printed ]
  %more = icmp slt i32 %i, %count
  br i1 %more, label %item, label %done
item:
  %first = icmp eq i32 %i, 0
  br i1 %first, label %size, label %comma
comma:
  call void @.tw.put(ptr %text, ptr @.tw.comma)
  br label %size
size:
  %p = getelementptr i64, ptr %sizes, i32 %i
  %v = load i64, ptr %p
  %negative = icmp slt i64 %v, 0
  %described = icmp ne ptr %symbols, null
  %unknown = and i1 %negative, %described
  br i1 %unknown, label %symbol, label %number
symbol:
  %k = sub i64 -2, %v
  %named = icmp sge i64 %k, 0
  %k0 = select i1 %named, i64 %k, i64 0
  %cell = getelementptr i64, ptr %symbols, i64 %k0
  %bound = load i64, ptr %cell
  %isbound = icmp sge i64 %bound, 0
  %use = and i1 %named, %isbound
  br i1 %use, label %number, label %any
any:
  call void @.tw.put(ptr %text, ptr @.tw.any)
  br label %printed
number:
  %shown = phi i64 [ %v, %size ], [ %bound, %symbol ]
  call void @.tw.number(ptr %text, i64 %shown)
  br label %printed
printed:
  %i1 = add i32 %i, 1
  br label %head
done:
  %one = icmp eq i32 %count, 1
  %end = select i1 %one, ptr @.tw.single, ptr @.tw.close
  call void @.tw.put(ptr %text, ptr %end)
  ret void
}

; Problems: 0 type code, 1 null, 2 shape, 3 dtype, 4 device, 5 strides, 6 offset, 7 alignment, 8 data.
define internal i32 @.tw.report(i32 %problem, ptr %function, ptr %d, i32 %code, ptr %t, ptr %symbols) cold noinline minsize optsize {
entry:
  %text = alloca %Text
  store i32 0, ptr %text
  call void @.tw.put(ptr %text, ptr %function)
  call void @.tw.put(ptr %text, ptr @.tw.argument)
  %name = load ptr, ptr %d
  call void @.tw.put(ptr %text, ptr %name)
  call void @.tw.put(ptr %text, ptr @.tw.expected)
  %dims.p = getelementptr %Argument, ptr %d, i32 0, i32 1
  %ndim.p = getelementptr %Argument, ptr %d, i32 0, i32 2
  %dtype.p = getelementptr %Argument, ptr %d, i32 0, i32 3
  %device.p = getelementptr %Argument, ptr %d, i32 0, i32 4
  %align.p = getelementptr %Argument, ptr %d, i32 0, i32 5
  %flags.p = getelementptr %Argument, ptr %d, i32 0, i32 6
  %dims = load ptr, ptr %dims.p
  %ndim = load i32, ptr %ndim.p
  %dtype = load i32, ptr %dtype.p
  %device = load i32, ptr %device.p
  %align = load i32, ptr %align.p
  %flags = load i32, ptr %flags.p
  %tdevice.p = getelementptr %Tensor, ptr %t, i32 0, i32 1, i32 0
  %tndim.p = getelementptr %Tensor, ptr %t, i32 0, i32 2
  %tdtype.p = getelementptr %Tensor, ptr %t, i32 0, i32 3
  %tshape.p = getelementptr %Tensor, ptr %t, i32 0, i32 4
  %tstrides.p = getelementptr %Tensor, ptr %t, i32 0, i32 5
  %toffset.p = getelementptr %Tensor, ptr %t, i32 0, i32 6
  switch i32 %problem, label %send [
    i32 0, label %bad.code
    i32 1, label %bad.null
    i32 2, label %bad.shape
    i32 3, label %bad.dtype
    i32 4, label %bad.device
    i32 5, label %bad.strides
    i32 6, label %bad.offset
    i32 7, label %bad.align
    i32 8, label %bad.data
  ]
bad.code:
  %istensor = and i32 %flags, 1
  %wantstensor = icmp ne i32 %istensor, 0
  br i1 %wantstensor, label %want.tensor, label %want.scalar
want.tensor:
  call void @.tw.put(ptr %text, ptr @.tw.tensor)
  br label %found.code
want.scalar:
  call void @.tw.dtype(ptr %text, i32 %dtype)
  br label %found.code
found.code:
  call void @.tw.put(ptr %text, ptr @.tw.found)
  %inrange = icmp ult i32 %code, 14
  %safe = select i1 %inrange, i32 %code, i32 5
  %cell = getelementptr [14 x ptr], ptr @.tw.codes, i32 0, i32 %safe
  %kind = load ptr, ptr %cell
  %nameless = icmp eq ptr %kind, null
  br i1 %nameless, label %print.code, label %print.kind
print.code:
  call void @.tw.put(ptr %text, ptr @.tw.code)
  %code64 = sext i32 %code to i64
  call void @.tw.number(ptr %text, i64 %code64)
  br label %send
print.kind:
  call void @.tw.put(ptr %text, ptr %kind)
  br label %send
bad.null:
  call void @.tw.put(ptr %text, ptr @.tw.tensor)
  call void @.tw.put(ptr %text, ptr @.tw.found)
  call void @.tw.put(ptr %text, ptr @.tw.null)
  br label %send
bad.shape:
  call void @.tw.put(ptr %text, ptr @.tw.shape)
  call void @.tw.sizes(ptr %text, ptr %dims, i32 %ndim, ptr %symbols)
  call void @.tw.put(ptr %text, ptr @.tw.found)
  %tshape = load ptr, ptr %tshape.p
  %tndim = load i32, ptr %tndim.p
  call void @.tw.sizes(ptr %text, ptr %tshape, i32 %tndim, ptr null)
  br label %send
bad.dtype:
  call void @.tw.dtype(ptr %text, i32 %dtype)
  call void @.tw.put(ptr %text, ptr @.tw.found)
  %tdtype = load i32, ptr %tdtype.p
  call void @.tw.dtype(ptr %text, i32 %tdtype)
  br label %send
bad.device:
  call void @.tw.put(ptr %text, ptr @.tw.device)
  %device64 = sext i32 %device to i64
  call void @.tw.number(ptr %text, i64 %device64)
  call void @.tw.put(ptr %text, ptr @.tw.found)
  %tdevice = load i32, ptr %tdevice.p
  %tdevice64 = sext i32 %tdevice to i64
  call void @.tw.number(ptr %text, i64 %tdevice64)
  br label %send
bad.strides:
  call void @.tw.put(ptr %text, ptr @.tw.compact)
  %tstrides = load ptr, ptr %tstrides.p
  call void @.tw.sizes(ptr %text, ptr %tstrides, i32 %ndim, ptr null)
  br label %send
bad.offset:
  call void @.tw.put(ptr %text, ptr @.tw.offset)
  %toffset = load i64, ptr %toffset.p
  call void @.tw.number(ptr %text, i64 %toffset)
  br label %send
bad.align:
  call void @.tw.put(ptr %text, ptr @.tw.align)
  %align64 = sext i32 %align to i64
  call void @.tw.number(ptr %text, i64 %align64)
  call void @.tw.put(ptr %text, ptr @.tw.bytes)
  %data = load ptr, ptr %t
  %address = ptrtoint ptr %data to i64
  %off = urem i64 %address, %align64
  call void @.tw.number(ptr %text, i64 %off)
  br label %send
bad.data:
  call void @.tw.put(ptr %text, ptr @.tw.data)
  br label %send
send:
  %message = getelementptr %Text, ptr %text, i32 0, i32 1
  %set = load ptr, ptr @__TVMAPISetLastError
  call void %set(ptr %message)
  ret i32 -1
}

define internal i32 @.tw.report.count(ptr %function, i32 %expected, i32 %found) cold noinline minsize optsize {
entry:
  %text = alloca %Text
  store i32 0, ptr %text
  call void @.tw.put(ptr %text, ptr %function)
  call void @.tw.put(ptr %text, ptr @.tw.count)
  %expected64 = sext i32 %expected to i64
  call void @.tw.number(ptr %text, i64 %expected64)
  call void @.tw.put(ptr %text, ptr @.tw.args)
  %found64 = sext i32 %found to i64
  call void @.tw.number(ptr %text, i64 %found64)
  %message = getelementptr %Text, ptr %text, i32 0, i32 1
  %set = load ptr, ptr @__TVMAPISetLastError
  call void %set(ptr %message)
  ret i32 -1
}

; Whether strides are those of a compact row-major tensor; a dimension of size 1 may have any.
define internal i1 @.tw.compact.strides(ptr %shape, ptr %strides, i32 %ndim) noinline {
entry:
  br label %head
head:
  %i = phi i32 [ %ndim, %entry ], [ %k, %good ]
  %step = phi i64 [ 1, %entry ], [ %wider, %good ]
  %more = icmp sgt i32 %i, 0
  br i1 %more, label %body, label %yes
body:
  %k = sub nsw i32 %i, 1
  %shape.p = getelementptr i64, ptr %shape, i32 %k
  %stride.p = getelementptr i64, ptr %strides, i32 %k
  %size = load i64, ptr %shape.p
  %stride = load i64, ptr %stride.p
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %yes, label %test
test:
  %one = icmp eq i64 %size, 1
  %same = icmp eq i64 %stride, %step
  %fits = or i1 %one, %same
  br i1 %fits, label %good, label %no
good:
  %wider = mul i64 %step, %size
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}

define weak hidden i32 @__tilewright_check_arguments(ptr %function, ptr %arguments, i32 %count, ptr %values, ptr %codes, i32 %num) {
entry:
  %symbols = alloca [32 x i64]
  call void @llvm.memset.p0.i64(ptr %symbols, i8 -1, i64 256, i1 false)
  %enough = icmp eq i32 %num, %count
  br i1 %enough, label %head, label %bad.count
bad.count:
  %rc = call i32 @.tw.report.count(ptr %function, i32 %count, i32 %num)
  ret i32 %rc
head:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %more = icmp slt i32 %i, %count
  br i1 %more, label %argument, label %done
done:
  ret i32 0
argument:
  %d = getelementptr %Argument, ptr %arguments, i32 %i
  %dims.p = getelementptr %Argument, ptr %d, i32 0, i32 1
  %ndim.p = getelementptr %Argument, ptr %d, i32 0, i32 2
  %dtype.p = getelementptr %Argument, ptr %d, i32 0, i32 3
  %device.p = getelementptr %Argument, ptr %d, i32 0, i32 4
  %align.p = getelementptr %Argument, ptr %d, i32 0, i32 5
  %flags.p = getelementptr %Argument, ptr %d, i32 0, i32 6
  %dims = load ptr, ptr %dims.p
  %ndim = load i32, ptr %ndim.p
  %dtype = load i32, ptr %dtype.p
  %flags = load i32, ptr %flags.p
  %code.p = getelementptr i32, ptr %codes, i32 %i
  %code = load i32, ptr %code.p
  %value.p = getelementptr i64, ptr %values, i32 %i
  %tensor.flag = and i32 %flags, 1
  %tensor = icmp ne i32 %tensor.flag, 0
  br i1 %tensor, label %is.tensor, label %is.scalar

is.scalar:
  %kind = and i32 %dtype, 255
  switch i32 %kind, label %want.float [
    i32 0, label %want.int
    i32 1, label %want.int
    i32 3, label %want.handle
  ]
want.int:
  %int.ok = icmp eq i32 %code, 0
  br i1 %int.ok, label %int.symbol, label %fail.code
want.float:
  %float.ok = icmp eq i32 %code, 2
  br i1 %float.ok, label %next, label %fail.code
want.handle:
  %handle.ok = icmp sge i32 %code, 3
  br i1 %handle.ok, label %next, label %fail.code
int.symbol:
  %has.symbol = icmp ne i32 %ndim, 0
  br i1 %has.symbol, label %int.bind, label %next
int.bind:
  %symbol.code = load i64, ptr %dims
  %int.value = load i64, ptr %value.p
  %int.index = sub i64 -2, %symbol.code
  %int.cell = getelementptr i64, ptr %symbols, i64 %int.index
  store i64 %int.value, ptr %int.cell
  br label %next

is.tensor:
  switch i32 %code, label %fail.code [
    i32 3, label %pointer
    i32 4, label %pointer
    i32 7, label %pointer
    i32 13, label %pointer
  ]
pointer:
  %t = load ptr, ptr %value.p
  %isnull.p = icmp eq ptr %t, null
  %isnull.c = icmp eq i32 %code, 4
  %isnull = or i1 %isnull.p, %isnull.c
  br i1 %isnull, label %fail.null, label %rank
rank:
  %tdevice.p = getelementptr %Tensor, ptr %t, i32 0, i32 1, i32 0
  %tndim.p = getelementptr %Tensor, ptr %t, i32 0, i32 2
  %tdtype.p = getelementptr %Tensor, ptr %t, i32 0, i32 3
  %tshape.p = getelementptr %Tensor, ptr %t, i32 0, i32 4
  %tstrides.p = getelementptr %Tensor, ptr %t, i32 0, i32 5
  %toffset.p = getelementptr %Tensor, ptr %t, i32 0, i32 6
  %tndim = load i32, ptr %tndim.p
  %tshape = load ptr, ptr %tshape.p
  %rank.ok = icmp eq i32 %tndim, %ndim
  br i1 %rank.ok, label %dim.head, label %fail.shape
dim.head:
  %k = phi i32 [ 0, %rank ], [ %k1, %dim.ok ]
  %elements = phi i64 [ 1, %rank ], [ %elements1, %dim.ok ]
  %dim.more = icmp slt i32 %k, %ndim
  br i1 %dim.more, label %dim, label %dtype.check
dim:
  %want.p = getelementptr i64, ptr %dims, i32 %k
  %have.p = getelementptr i64, ptr %tshape, i32 %k
  %want = load i64, ptr %want.p
  %have = load i64, ptr %have.p
  %known = icmp sge i64 %want, 0
  br i1 %known, label %dim.known, label %dim.symbol
dim.known:
  %dim.same = icmp eq i64 %want, %have
  br i1 %dim.same, label %dim.ok, label %fail.shape
dim.symbol:
  %index = sub i64 -2, %want
  %anything = icmp slt i64 %index, 0
  %sane = icmp sge i64 %have, 0
  br i1 %sane, label %dim.any, label %fail.shape
dim.any:
  br i1 %anything, label %dim.ok, label %dim.bound
dim.bound:
  %cell = getelementptr i64, ptr %symbols, i64 %index
  %bound = load i64, ptr %cell
  %free = icmp slt i64 %bound, 0
  br i1 %free, label %dim.bind, label %dim.compare
dim.bind:
  store i64 %have, ptr %cell
  br label %dim.ok
dim.compare:
  %consistent = icmp eq i64 %bound, %have
  br i1 %consistent, label %dim.ok, label %fail.shape
dim.ok:
  %elements1 = mul i64 %elements, %have
  %k1 = add i32 %k, 1
  br label %dim.head
dtype.check:
  %tdtype = load i32, ptr %tdtype.p
  %dtype.ok = icmp eq i32 %tdtype, %dtype
  br i1 %dtype.ok, label %device.check, label %fail.dtype
device.check:
  %device = load i32, ptr %device.p
  %tdevice = load i32, ptr %tdevice.p
  %device.ok = icmp eq i32 %device, %tdevice
  br i1 %device.ok, label %strides.check, label %fail.device
strides.check:
  %tstrides = load ptr, ptr %tstrides.p
  %nostrides = icmp eq ptr %tstrides, null
  %free.flag = and i32 %flags, 2
  %anystrides = icmp ne i32 %free.flag, 0
  %strides.ok = or i1 %nostrides, %anystrides
  br i1 %strides.ok, label %offset.check, label %strides.compare
strides.compare:
  %compact = call i1 @.tw.compact.strides(ptr %tshape, ptr %tstrides, i32 %ndim)
  br i1 %compact, label %offset.check, label %fail.strides
offset.check:
  %toffset = load i64, ptr %toffset.p
  %nooffset = icmp eq i64 %toffset, 0
  %offset.flag = and i32 %flags, 4
  %anyoffset = icmp ne i32 %offset.flag, 0
  %offset.ok = or i1 %nooffset, %anyoffset
  br i1 %offset.ok, label %data.check, label %fail.offset
data.check:
  %data = load ptr, ptr %t
  %nodata = icmp eq ptr %data, null
  %nonempty = icmp ne i64 %elements, 0
  %needed = and i1 %nodata, %nonempty
  br i1 %needed, label %fail.data, label %align.check
align.check:
  %align = load i32, ptr %align.p
  %mask = sub i32 %align, 1
  %mask64 = zext i32 %mask to i64
  %address = ptrtoint ptr %data to i64
  %low = and i64 %address, %mask64
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %next, label %fail.align
next:
  %i1 = add i32 %i, 1
  br label %head

fail.code:
  br label %fail
fail.null:
  br label %fail
fail.shape:
  br label %fail
fail.dtype:
  br label %fail
fail.device:
  br label %fail
fail.strides:
  br label %fail
fail.offset:
  br label %fail
fail.align:
  br label %fail
fail.data:
  br label %fail
fail:
  %problem = phi i32 [ 0, %fail.code ], [ 1, %fail.null ], [ 2, %fail.shape ], [ 3, %fail.dtype ], [ 4, %fail.device ], [ 5, %fail.strides ], [ 6, %fail.offset ], [ 7, %fail.align ], [ 8, %fail.data ]
  %bad = phi ptr [ null, %fail.code ], [ null, %fail.null ], [ %t, %fail.shape ], [ %t, %fail.dtype ], [ %t, %fail.device ], [ %t, %fail.strides ], [ %t, %fail.offset ], [ %t, %fail.align ], [ %t, %fail.data ]
  %status = call i32 @.tw.report(i32 %problem, ptr %function, ptr %d, i32 %code, ptr %bad, ptr %symbols)
  ret i32 %status
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
