// Functions of any arguments in C++: prints nothing, and returns the line of the first check that fails.
#include <dlpack/dlpack.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

using namespace tvm::runtime;

#define EXPECT(x) \
  if (!(x)) return __LINE__
#define THROWS(call, words)                                                            \
  try {                                                                                \
    call;                                                                              \
    return __LINE__;                                                                   \
  } catch (const std::exception& error) {                                              \
    if (std::string(error.what()).find(words) == std::string::npos) return __LINE__;   \
  }

TVM_REGISTER_GLOBAL("test.cpp.add").set_body_typed([](int a, int b) { return a + b; });
TVM_REGISTER_GLOBAL("test.cpp.codes").set_body([](TVMArgs args, TVMRetValue* rv) {
  std::string codes;
  for (int i = 0; i < args.size(); ++i) codes += std::string(ArgTypeCode2Str(args[i].type_code())) + " ";
  *rv = codes;
});
static double scaled(const std::string& text, float by, bool twice) { return text.size() * by * (twice ? 2 : 1); }
TVM_REGISTER_GLOBAL("test.cpp.scaled").set_body_typed(scaled);

static const DLDevice cpu = {kDLCPU, 0};

static int values() {
  const PackedFunc add = *Registry::Get("test.cpp.add"), codes = *Registry::Get("test.cpp.codes");
  EXPECT(add(1, 2).operator int() == 3);
  NDArray x = NDArray::Empty({2, 2}, DLDataType{kDLFloat, 32, 1}, cpu);
  const std::string found = codes(x, const_cast<DLTensor*>(x.operator->()), 1, 2.5, "a", nullptr, add, cpu, DataType::Int(8));
  EXPECT(found == "NDArray DLTensor* int float str None PackedFunc DLDevice DLDataType ");
  EXPECT((*Registry::Get("test.cpp.scaled"))("abc", 0.5, true).operator double() == 3.0);
  EXPECT(Registry::Get("test.cpp.missing") == nullptr);
  PackedFunc same([](TVMArgs args, TVMRetValue* rv) { *rv = args[0]; });
  EXPECT(same(x).operator NDArray().same_as(x));
  EXPECT(same("text").operator std::string() == "text");
  EXPECT(same("float32x2").operator DataType() == DataType::Float(32, 2));
  EXPECT(same(DataType::Float(32, 2)).operator std::string() == "float32x2");
  EXPECT(same(nullptr).operator NDArray() == nullptr && same(NDArray()).operator Module() == nullptr);
  EXPECT(same(int64_t(1) << 40).operator int64_t() == int64_t(1) << 40);
  THROWS(same(int64_t(1) << 40).operator int(), "1099511627776");
  return 0;
}

static int functions() {
  PackedFunc addone([](TVMArgs args, TVMRetValue* rv) { *rv = args[0].operator int() + 1; });
  PackedFunc apply([](TVMArgs args, TVMRetValue* rv) { *rv = args[0].operator PackedFunc()(args[1]); });
  EXPECT(apply(addone, 1).operator int() == 2);
  using One = TypedPackedFunc<int(int)>;
  using Two = TypedPackedFunc<int(int, int)>;
  TypedPackedFunc<One(Two, int)> bind = [](Two f, int value) -> One { return [f, value](int x) { return f(value, x); }; };
  EXPECT(bind([](int x, int y) { return x - y; }, 1)(2) == -1);
  One bound = bind.packed()(Two([](int x, int y) { return x - y; }), 1);
  EXPECT(bound(2) == -1);
  THROWS(Two(*Registry::Get("test.cpp.add")).packed()(1), "takes 2 arguments, and was given 1");
  THROWS((*Registry::Get("test.cpp.add"))(1, "x"), "expected int, got str");
  THROWS(PackedFunc()(1), "null function");
  THROWS(Module::LoadFromFile("/nowhere/x.so"), "/nowhere/x.so");
  return 0;
}

static int arrays() {
  NDArray x = NDArray::Empty({3}, DataType::Float(32), cpu), y = NDArray::Empty({3}, DataType::Float(32), cpu);
  const float numbers[] = {1, 2, 3};
  float back[3] = {};
  x.CopyFromBytes(numbers, sizeof numbers);
  x.CopyTo(y);
  NDArray z = NDArray::FromDLPack(y.CopyTo(cpu).ToDLPack());
  z.CopyToBytes(back, sizeof back);
  EXPECT(back[2] == 3 && z.Shape() == ShapeTuple({3}) && z.DataType() == DataType::Float(32));
  EXPECT(GetDataSize(*z.operator->()) == 12 && !z.same_as(y));
  Array<NDArray> some{x, y};
  Array<NDArray> others = some;
  others.push_back(z);
  EXPECT(some.size() == 2 && others.size() == 3 && others[1].same_as(y));
  return 0;
}

class Adder : public ModuleNode {
 public:
  explicit Adder(int by) : by_(by) {}
  const char* type_key() const final { return "test_adder"; }
  PackedFunc GetFunction(const std::string& name, const ObjectPtr<Object>& self) final {
    if (name != "add") return nullptr;
    return TypedPackedFunc<int(int)>([self, this](int value) { return by_ + value; });
  }
  std::string GetSource(const std::string&) final { return "adds " + std::to_string(by_); }

 private:
  int by_;
};

static int modules() {
  Module adder(make_object<Adder>(40));
  PackedFunc add = adder.GetFunction("add");
  EXPECT(adder.GetFunction("sub") == nullptr);
  EXPECT(adder->type_key() == "test_adder" && adder->GetSource() == "adds 40");
  adder = nullptr;
  EXPECT(add(2).operator int() == 42);
  return 0;
}

int main() {
  for (auto* part : {values, functions, arrays, modules}) {
    if (const int line = part()) return std::fprintf(stderr, "line %d: %s\n", line, TVMGetLastError()), 1;
  }
  return 0;
}
