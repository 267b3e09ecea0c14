// A compiled network from Go, by the C interface: run LIBRARY INPUT OUTPUT reads the first input's numbers (float32)
// from a file, writes the first output's to another, and prints how long runs take.
//
//	LIB=$(python -c "from tilewright.runtime._ffi import find_library; print(find_library().parent)")
//	CGO_CFLAGS=-Inative/include CGO_LDFLAGS="-L$LIB -Wl,-rpath,$LIB" go build -o run
package main

/*
#cgo LDFLAGS: -ltilewright_runtime
#include <stdlib.h>
#include <tilewright_model.h>

// Go's memory is passed as arguments alone: a tensor that points to it stays in C.
static int set_floats(TilewrightModel* model, const char* name, float* data, int ndim, int64_t* shape) {
  DLTensor value = {data, {kDLCPU, 0}, ndim, {kDLFloat, 32, 1}, shape, NULL, 0};
  return TilewrightModelSetInput(model, name, &value);
}

static int open_on_cpu(const char* path, TilewrightModel** out) {
  return TilewrightModelOpen(path, (DLDevice){kDLCPU, 0}, out);
}
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"time"
	"unsafe"
)

// Model is a network for one goroutine at a time; Clone gives another one its own.
type Model struct{ handle *C.TilewrightModel }

func checked(status C.int) error {
	if status == 0 {
		return nil
	}
	return errors.New(C.GoString(C.TVMGetLastError()))
}

// Open loads a library of `tilewright compile`.
func Open(path string) (*Model, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	model := &Model{}
	return model, checked(C.open_on_cpu(name, &model.handle))
}

// Clone shares the weights, and has inputs, outputs and memory of its own.
func (m *Model) Clone() (*Model, error) {
	model := &Model{}
	return model, checked(C.TilewrightModelClone(m.handle, &model.handle))
}

// Close frees the model.
func (m *Model) Close() { C.TilewrightModelFree(m.handle) }

// Input gives the name and the shape of an input; -1 is a dimension that is known when the model runs.
func (m *Model) Input(index int) (string, []int64, error) {
	var info C.TilewrightTensorInfo
	if err := checked(C.TilewrightModelInputInfo(m.handle, C.int(index), &info)); err != nil {
		return "", nil, err
	}
	shape := make([]int64, int(info.ndim))
	for i := range shape {
		shape[i] = int64(unsafe.Slice(info.shape, len(shape))[i])
	}
	return C.GoString(info.name), shape, nil
}

// SetInput copies numbers to an input.
func (m *Model) SetInput(name string, values []float32, shape []int64) error {
	count := int64(1)
	for _, extent := range shape {
		count *= extent
	}
	if count != int64(len(values)) || count == 0 {
		return fmt.Errorf("input %s: %d numbers were given for the shape %v", name, len(values), shape)
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var extents *C.int64_t
	if len(shape) > 0 {
		extents = (*C.int64_t)(unsafe.Pointer(&shape[0]))
	}
	return checked(C.set_floats(m.handle, text, (*C.float)(unsafe.Pointer(&values[0])), C.int(len(shape)), extents))
}

// Run computes the outputs.
func (m *Model) Run() error { return checked(C.TilewrightModelRun(m.handle)) }

// Output copies an output.
func (m *Model) Output(index int) ([]float32, error) {
	var array C.TVMArrayHandle
	if err := checked(C.TilewrightModelOutput(m.handle, C.int(index), &array)); err != nil {
		return nil, err
	}
	if array.dtype.code != C.kDLFloat || array.dtype.bits != 32 {
		return nil, fmt.Errorf("output %d is not of float32", index)
	}
	count := 1
	for _, extent := range unsafe.Slice(array.shape, int(array.ndim)) {
		count *= int(extent)
	}
	first := unsafe.Add(array.data, uintptr(array.byte_offset))
	return append([]float32(nil), unsafe.Slice((*float32)(first), count)...), nil
}

func run(library, input, output string) error {
	model, err := Open(library)
	if err != nil {
		return err
	}
	defer model.Close()
	bytes, err := os.ReadFile(input)
	if err != nil {
		return err
	}
	values := make([]float32, len(bytes)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
	name, shape, err := model.Input(0)
	if err != nil {
		return err
	}
	if err := model.SetInput(name, values, shape); err != nil {
		return err
	}
	least := time.Duration(math.MaxInt64)
	for i := 0; i < 10; i++ {
		start := time.Now()
		if err := model.Run(); err != nil {
			return err
		}
		if took := time.Since(start); took < least {
			least = took
		}
	}
	fmt.Printf("%.2f ms\n", float64(least.Microseconds())/1000)
	found, err := model.Output(0)
	if err != nil {
		return err
	}
	bytes = make([]byte, 4*len(found))
	for i, value := range found {
		binary.LittleEndian.PutUint32(bytes[4*i:], math.Float32bits(value))
	}
	return os.WriteFile(output, bytes, 0o644)
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: run LIBRARY INPUT OUTPUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
