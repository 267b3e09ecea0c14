/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The graph executor on several devices. */
#include "npu.h"

/* out = a + b + 1, in memory of the host or of a device, which is opened for it. */
static int add_there(TVMValue* args, int* codes, int n, TVMValue* ret, int* ret_code, void* resource) {
  const DLTensor* first = args[0].v_handle;
  const bool guarded = first->device.device_type != kDLCPU;
  for (int i = 0; i < n; ++i) {
    const DLTensor* t = args[i].v_handle;
    CHECK(t->device.device_type == first->device.device_type && t->device.device_id == first->device.device_id);
    CHECK(t->byte_offset == 0);
    if (guarded) npu_open(t->data, 60, true);
  }
  int rc = kernel_add(args, codes, n, ret, ret_code, resource);
  for (int i = 0; guarded && i < n; ++i) npu_open(((const DLTensor*)args[i].v_handle)->data, 60, false);
  return rc;
}

static const Kernel kernels[] = {{"add", add_there}, {NULL, NULL}};
static const int64_t shape[2] = {3, 5};

#define NODE(name, func, inputs)                                                                                     \
  "{\"op\": \"tvm_op\", \"name\": \"" name "\", \"attrs\": {\"num_outputs\": \"1\", \"num_inputs\": \"1\","          \
  " \"flatten_data\": \"0\", \"func_name\": \"" func "\"}, \"inputs\": [" inputs "]}"

/* x (host) -> far = __copy -> sum = far + w + 1 -> flat = __nop -> back = __copy (host) -> last = back + 1; w on the device */
static char* graph_on(int type) {
  char* text = malloc(4096);
  snprintf(text, 4096,
           "{\"nodes\": [{\"op\": \"null\", \"name\": \"x\", \"inputs\": []}, {\"op\": \"null\", \"name\": \"w\", \"inputs\": []}, "
           NODE("far", "__copy", "[0, 0, 0]") ", " NODE("sum", "add", "[2, 0, 0], [1, 0, 0]") ", "
           NODE("flat", "__nop", "[3, 0, 0]") ", " NODE("back", "__copy", "[4, 0, 0]") ", "
           NODE("last", "add", "[5, 0, 0]") "],"
           " \"arg_nodes\": [0, 1], \"heads\": [[6, 0, 0], [3, 0, 0]], \"node_row_ptr\": [0, 1, 2, 3, 4, 5, 6, 7],"
           " \"attrs\": {\"dltype\": [\"list_str\", [\"float32\", \"float32\", \"float32\", \"float32\", \"float32\","
           " \"float32\", \"float32\"]], \"storage_id\": [\"list_int\", [0, 1, 2, 3, 3, 4, 5]],"
           " \"device_index\": [\"list_int\", [1, %d, %d, %d, %d, 1, 1]],"
           " \"shape\": [\"list_shape\", [[3, 5], [3, 5], [3, 5], [3, 5], [15], [15], [15]]]}}",
           type, type, type, type);
  return text;
}

static TilewrightGraph* make(TVMModuleHandle lib, const char* json, DLDevice far_side) {
  const DLDevice devices[2] = {cpu0, far_side};
  TilewrightGraph* g;
  OK(TilewrightGraphCreateOn(json, strlen(json), lib, devices, 2, &g));
  return g;
}

static float value_of(TVMArrayHandle array) {
  float values[15];
  OK(TVMArrayCopyToBytes(array, values, sizeof values));
  for (int i = 1; i < 15; ++i) CHECK(values[i] == values[0]);
  return values[0];
}

static void set(TilewrightGraph* g, const char* name, float value) {
  TVMArrayHandle a = filled(2, shape, value);
  OK(TilewrightGraphSetInput(g, name, a));
  TVMArrayFree(a);
}

static float output(TilewrightGraph* g, int index, DLDevice device) {
  TVMArrayHandle out;
  OK(TilewrightGraphGetOutput(g, index, &out));
  CHECK(out->device.device_type == device.device_type && out->device.device_id == device.device_id);
  const float value = value_of(out);
  TVMArrayFree(out);
  return value;
}

static void graphs_run_on_two(DLDevice far_side) {
  TVMModuleHandle lib = module_of(kernels);
  char* json = graph_on(far_side.device_type);
  npu.made = npu.gone = 0;
  TilewrightGraph* g = make(lib, json, far_side);
  TVMModFree(lib);
  CHECK(far_side.device_type != NPU || (npu.made == 1 && npu.gone == 0 && npu.id == far_side.device_id));
  DLTensor info;
  OK(TilewrightGraphInputInfo(g, 1, &info));
  CHECK(info.device.device_type == far_side.device_type && info.device.device_id == far_side.device_id);
  set(g, "x", 10);
  set(g, "w", 20);
  OK(TilewrightGraphRun(g));
  CHECK(output(g, 0, cpu0) == 32 && output(g, 1, far_side) == 31);
  /* a whole run at once: what comes out is the host's */
  TVMArrayHandle x = filled(2, shape, 1), w = filled(2, shape, 2), outputs[2];
  const char* names[2] = {"x", "w"};
  const DLTensor* values[2] = {x, w};
  OK(TilewrightGraphInfer(g, 2, names, values, outputs));
  CHECK(((float*)outputs[0]->data)[14] == 5 && ((float*)outputs[1]->data)[14] == 4);
  TVMArrayFree(outputs[0]);
  TVMArrayFree(outputs[1]);
  /* a value from the device, and back to it */
  TVMArrayHandle there, copy;
  OK(TVMArrayAlloc(shape, 2, kDLFloat, 32, 1, far_side.device_type, far_side.device_id, &there));
  OK(TVMArrayCopyFromTo(w, there, NULL));
  OK(TilewrightGraphSetInput(g, "x", there));
  OK(TilewrightGraphSetInputZeroCopyAt(g, 1, there));
  OK(TilewrightGraphRun(g));
  CHECK(output(g, 0, cpu0) == 6);
  FAILS(TilewrightGraphSetInputZeroCopyAt(g, 1, w), "and the array on cpu(0); copy it with set_input");
  OK(TVMArrayAlloc(shape, 2, kDLFloat, 32, 1, far_side.device_type, far_side.device_id, &copy));
  OK(TilewrightGraphSetOutputZeroCopyAt(g, 1, copy));
  OK(TilewrightGraphSetOutputZeroCopyAt(g, 1, x)); /* elsewhere: a run copies it there */
  OK(TilewrightGraphRun(g));
  CHECK(((float*)x->data)[14] == 5);
  OK(TilewrightGraphDebugGetOutput(g, 4, copy));
  CHECK(value_of(copy) == 5);
  double seconds[7];
  OK(TilewrightGraphTimeNodes(g, 2, seconds));
  CHECK(seconds[2] > 0 && seconds[3] > 0 && seconds[4] == 0);
  TilewrightGraphFree(g);
  TVMArrayFree(x);
  TVMArrayFree(w);
  TVMArrayFree(there);
  TVMArrayFree(copy);
  CHECK(far_side.device_type != NPU || npu.gone == 1);
  CHECK(npu.held == 0 && dsp.held == 0);
  free(json);
}

static void the_first_device_is_that_of_graphs_without_places(void) {
  TVMModuleHandle lib = module_of(kernels);
  char* json = graph_on(0); /* 0: the graph does not say */
  const DLDevice twice[3] = {cpu0, cpu0, npu1};
  TilewrightGraph* g;
  npu.made = 0;
  OK(TilewrightGraphCreateOn(json, strlen(json), lib, twice, 3, &g));
  CHECK(npu.made == 1);
  set(g, "x", 1);
  set(g, "w", 1);
  OK(TilewrightGraphRun(g));
  CHECK(output(g, 1, cpu0) == 3);
  TilewrightGraphFree(g);
  TVMModFree(lib);
  free(json);
}

static void bad_places_are_refused(void) {
  TVMModuleHandle lib = module_of(kernels);
  char* json = graph_on(NPU);
  TilewrightGraph* g;
  const DLDevice missing[2] = {npu0, {NPU, 7}}, other[2] = {cpu0, dsp0};
  npu.made = npu.gone = 0;
  FAILS(TilewrightGraphCreate(json, strlen(json), lib, cpu0, &g),
        "device type 100 (npu), and the executor was given cpu(0); give it a device of each type");
  FAILS(TilewrightGraphCreateOn(json, strlen(json), lib, other, 2, &g), "was given cpu(0), dsp(0)");
  FAILS(TilewrightGraphCreateOn(json, strlen(json), lib, missing, 2, &g), "no device npu(7)");
  FAILS(TilewrightGraphCreateOn(json, strlen(json), lib, missing, 0, &g), "needs a device");
  CHECK(npu.made == npu.gone);
  npu.refuse = true;
  FAILS(TilewrightGraphCreate(json, strlen(json), lib, npu0, &g), "npu(0): no model fits");
  npu.refuse = false;
  CHECK(npu.made == npu.gone && npu.held == 0);
  /* a __nop between devices, and a storage on two */
  char* at = strstr(json, "[1, 100, 100, 100, 100");
  memcpy(at, "[1, 100, 100, 100,   1", 22);
  const DLDevice both[2] = {cpu0, npu0};
  FAILS(TilewrightGraphCreateOn(json, strlen(json), lib, both, 2, &g), "\"flat\" is on another device than its input");
  memcpy(at, "[1,   1, 100, 100, 100", 22);
  memcpy(strstr(json, "[0, 1, 2, 3, 3"), "[0, 2, 2, 3, 3", 14);
  FAILS(TilewrightGraphCreateOn(json, strlen(json), lib, both, 2, &g), "storage 2 is on two devices");
  memcpy(at, "[1, 200, 100, 100, 100", 22);
  FAILS(TilewrightGraphCreateOn(json, strlen(json), lib, both, 2, &g), "must hold device types");
  CHECK(npu.made == npu.gone && npu.held == 0);
  TVMModFree(lib);
  free(json);
}

/* save_param_dict's form of {"w": filled with value} */
static size_t params_of(char* buffer, float value) {
  const uint64_t head[] = {0xF7E58D4F05049CB7u, 0, 1, 1};
  const uint64_t array[] = {0xDD5E40F096B4A13Fu, 0};
  const int32_t place[] = {kDLCPU, 0, 2};
  const DLDataType type = {kDLFloat, 32, 1};
  const uint64_t one = 1, nbytes = 60;
  char* p = buffer;
#define PUT(what) (memcpy(p, &(what), sizeof(what)), p += sizeof(what))
  PUT(head);
  *p++ = 'w';
  PUT(one), PUT(array), PUT(place), PUT(type), PUT(shape), PUT(nbytes);
  for (int i = 0; i < 15; ++i) PUT(value);
  return (size_t)(p - buffer);
}

static void parameters_are_loaded_to_their_device_and_shared_there(void) {
  char bytes[256];
  const size_t size = params_of(bytes, 40);
  char* json = graph_on(NPU);
  TVMModuleHandle lib = module_of(kernels);
  TilewrightGraph *g = make(lib, json, npu0), *same = make(lib, json, npu0), *other = make(lib, json, npu1);
  OK(TilewrightGraphLoadParams(g, bytes, size));
  OK(TilewrightGraphShareParams(same, g, bytes, size));
  OK(TilewrightGraphShareParams(other, g, bytes, size));
  TVMArrayHandle a, b;
  OK(TilewrightGraphGetInput(g, 1, &a));
  OK(TilewrightGraphGetInput(same, 1, &b));
  CHECK(a->data == b->data && a->device.device_type == NPU);
  TVMArrayFree(b);
  OK(TilewrightGraphGetInput(other, 1, &b));
  CHECK(a->data != b->data && b->device.device_id == 1);
  TVMArrayFree(a);
  TVMArrayFree(b);
  TilewrightGraphFree(g);
  set(same, "x", 1);
  set(other, "x", 2);
  OK(TilewrightGraphRun(same));
  OK(TilewrightGraphRun(other));
  CHECK(output(same, 0, cpu0) == 43 && output(other, 0, cpu0) == 44);
  TilewrightGraphFree(same);
  TilewrightGraphFree(other);
  TVMModFree(lib);
  free(json);
  CHECK(npu.held == 0);
}

/* Executors of one library share its parameters, and on a device one copy of them. */
static void a_library_brings_its_parameters_to_a_device_once(void) {
  char* json = graph_on(NPU);
  TVMModuleHandle lib = module_of(kernels), factory;
  TVMArrayHandle w = filled(2, shape, 40);
  TVMFunctionHandle create;
  TVMValue args[5] = {{.v_str = json}, {.v_handle = lib}, {.v_str = "net"}, {.v_str = "w"}, {.v_handle = w}}, ret;
  int codes[5] = {kTVMStr, kTVMModuleHandle, kTVMStr, kTVMStr, kTVMNDArrayHandle}, code;
  OK(TVMFuncGetGlobal("tvm.graph_executor_factory.create", &create));
  OK(TVMFuncCall(create, args, codes, 5, &ret, &code));
  TVMFuncFree(create);
  /* through the stream that a library carries, since the parameters of a factory in memory are lent */
  char path[] = "/tmp/tilewright-placement-XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0);
  OK(TilewrightModSaveToFile(ret.v_handle, path));
  TVMModFree(ret.v_handle);
  size_t size;
  char* payload = read_file(path, &size);
  remove(path);
  char* blob = malloc(size + 256);
  char* p = blob;
  const uint64_t total = 8 + (8 + 20 + size) + (8 + 4) + (8 + 12) + (8 + 3 * 8) + (8 + 8), entries = 3, key = 20, lib_key = 4,
                 tree_key = 12, rows[4] = {3, 0, 1, 1}, children[2] = {1, 1};
  PUT(total), PUT(entries), PUT(key);
  memcpy(p, "GraphExecutorFactory", 20), p += 20;
  memcpy(p, payload, size), p += size;
  PUT(lib_key);
  memcpy(p, "_lib", 4), p += 4;
  PUT(tree_key);
  memcpy(p, "_import_tree", 12), p += 12;
  PUT(rows), PUT(children);
  OK(TilewrightModFromBlob(blob, (size_t)(p - blob), lib, &factory));
  TilewrightGraph* g[3];
  const DLDevice first[2] = {cpu0, npu0}, second[2] = {cpu0, npu1};
  npu.held = 0;
  OK(TilewrightGraphFromModuleOn(factory, "net", first, 2, &g[0]));
  const int with_one = npu.held;
  OK(TilewrightGraphFromModuleOn(factory, "net", first, 2, &g[1]));
  CHECK(npu.held == 2 * with_one - 1); /* all but w */
  OK(TilewrightGraphFromModuleOn(factory, "net", second, 2, &g[2]));
  CHECK(npu.held == 3 * with_one - 1);
  for (int i = 0; i < 3; ++i) {
    set(g[i], "x", (float)i);
    OK(TilewrightGraphRun(g[i]));
    CHECK(output(g[i], 0, cpu0) == 42 + (float)i);
  }
  set(g[0], "w", 0); /* others do not see it */
  OK(TilewrightGraphRun(g[1]));
  CHECK(output(g[1], 0, cpu0) == 43);
  for (int i = 0; i < 3; ++i) TilewrightGraphFree(g[i]);
  CHECK(npu.held == 2); /* w on both */
  TVMModFree(factory);
  CHECK(npu.held == 0);
  TVMModFree(lib);
  TVMArrayFree(w);
  free(payload);
  free(blob);
  free(json);
}

void test_placement(void) {
  plug_npu_in();
  graphs_run_on_two(npu1);
  graphs_run_on_two(dsp0);
  the_first_device_is_that_of_graphs_without_places();
  bad_places_are_refused();
  parameters_are_loaded_to_their_device_and_shared_there();
  a_library_brings_its_parameters_to_a_device_once();
}
