// Models compiled by Mirlo, from C++11: the functions of mirlo.h with owners and exceptions.
#ifndef MIRLO_HPP
#define MIRLO_HPP

#include "mirlo.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace mirlo {

class Error : public std::runtime_error {
 public:
  Error(int status, const std::string &text) : std::runtime_error(text), status(status) {}
  int status;  // a mirlo_status
};

// The DLPack type of the elements of an array.
template <typename T> struct Type;
#define MIRLO_TYPE(T, CODE)                                                          \
  template <> struct Type<T> {                                                       \
    static DLDataType get() { return DLDataType{CODE, sizeof(T) * 8, 1}; }           \
  };
MIRLO_TYPE(float, kDLFloat)
MIRLO_TYPE(double, kDLFloat)
MIRLO_TYPE(int8_t, kDLInt)
MIRLO_TYPE(int16_t, kDLInt)
MIRLO_TYPE(int32_t, kDLInt)
MIRLO_TYPE(int64_t, kDLInt)
MIRLO_TYPE(uint8_t, kDLUInt)
MIRLO_TYPE(uint16_t, kDLUInt)
MIRLO_TYPE(uint32_t, kDLUInt)
MIRLO_TYPE(uint64_t, kDLUInt)
MIRLO_TYPE(bool, kDLBool)
#undef MIRLO_TYPE

// A tensor over memory of the caller, or over that of a result.
class Tensor {
 public:
  Tensor() = default;
  template <typename T> Tensor(T *data, std::vector<int64_t> shape) : shape_(std::move(shape)) {
    tensor_.data = const_cast<void *>(static_cast<const void *>(data));
    tensor_.dtype = Type<typename std::remove_const<T>::type>::get();
    tensor_.ndim = static_cast<int32_t>(shape_.size());
  }
  const std::vector<int64_t> &shape() const { return shape_; }
  size_t size() const {
    size_t count = 1;
    for (int64_t dim : shape_) count *= static_cast<size_t>(dim);
    return count;
  }
  DLDataType dtype() const { return tensor_.dtype; }
  // The elements, whose type must be T.
  template <typename T> T *data() const {
    DLDataType own = tensor_.dtype, wanted = Type<typename std::remove_const<T>::type>::get();
    if (own.code != wanted.code || own.bits != wanted.bits) throw Error(MIRLO_INPUT, "the tensor has elements of another type");
    return static_cast<T *>(tensor_.data);
  }
  template <typename T> T *begin() const { return data<T>(); }
  template <typename T> T *end() const { return data<T>() + size(); }

 private:
  friend class Context;
  DLTensor view() const {
    DLTensor made = tensor_;
    made.shape = const_cast<int64_t *>(shape_.data());
    return made;
  }
  DLTensor tensor_{nullptr, {kDLCPU, 0}, 0, {0, 0, 0}, nullptr, nullptr, 0};
  std::vector<int64_t> shape_;
  std::shared_ptr<std::vector<unsigned char>> memory_;
};

class Model {
 public:
  explicit Model(const mirlo_code &code, const mirlo_options *options = nullptr) {
    char text[256] = "";
    mirlo_model *made = nullptr;
    int status = mirlo_create(&code, options, &made, text, sizeof text);
    if (status != MIRLO_OK) throw Error(status, text);
    model_.reset(made, mirlo_close);
  }
  Model(const std::string &library, const std::string &name, const mirlo_options *options = nullptr) {
    char text[256] = "";
    mirlo_model *made = nullptr;
    int status = mirlo_open(library.c_str(), name.c_str(), options, &made, text, sizeof text);
    if (status != MIRLO_OK) throw Error(status, text);
    model_.reset(made, mirlo_close);
  }
  const mirlo_code &code() const {
    if (!model_) throw Error(MIRLO_INPUT, "the model was moved");
    return *mirlo_code_of(model_.get());
  }

 private:
  friend class Context;
  std::shared_ptr<mirlo_model> model_;
};

// What one thread at a time calls a model with.
class Context {
 public:
  explicit Context(const Model &model) : model_(model.model_) {
    mirlo_context *made = nullptr;
    int status = mirlo_context_create(model_.get(), &made);
    if (status != MIRLO_OK) throw Error(status, status == MIRLO_INPUT ? "the model was moved" : "there is no memory for a context");
    context_.reset(made);
  }
  // Run the model. The results own their memory, but for those whose sizes depend on data: they last until the next call.
  std::vector<Tensor> run(const std::vector<Tensor> &inputs) {
    const mirlo_code &code = this->code();
    if (inputs.size() != static_cast<size_t>(code.inputs)) throw Error(MIRLO_INPUT, "another number of inputs");
    std::vector<DLTensor> given, made;
    for (const Tensor &input : inputs) given.push_back(input.view());
    std::vector<Tensor> outputs(static_cast<size_t>(code.outputs));
    for (int32_t i = 0; i < code.outputs; ++i) {
      outputs[i].shape_.resize(static_cast<size_t>(code.values[code.inputs + i].ndim));
      made.push_back(outputs[i].view());
    }
    check(mirlo_shapes(context_.get(), given.data(), made.data()));
    for (int32_t i = 0; i < code.outputs; ++i) {
      if (code.values[code.inputs + i].late) continue;
      size_t bytes = mirlo_bytes(&made[i]) + 64;
      outputs[i].memory_ = std::make_shared<std::vector<unsigned char>>(bytes);
      unsigned char *start = outputs[i].memory_->data();
      made[i].data = start + (64 - reinterpret_cast<uintptr_t>(start) % 64) % 64;
    }
    check(mirlo_run(context_.get(), given.data(), made.data()));
    for (int32_t i = 0; i < code.outputs; ++i) outputs[i].tensor_ = made[i];
    return outputs;
  }
  // Run the model on outputs of the caller, which may have the memory of the inputs that they update in place.
  void run(const std::vector<Tensor> &inputs, const std::vector<Tensor> &outputs) {
    const mirlo_code &code = this->code();
    if (inputs.size() != static_cast<size_t>(code.inputs)) throw Error(MIRLO_INPUT, "another number of inputs");
    if (outputs.size() != static_cast<size_t>(code.outputs)) throw Error(MIRLO_INPUT, "another number of outputs");
    std::vector<DLTensor> given, made;
    for (const Tensor &input : inputs) given.push_back(input.view());
    for (const Tensor &output : outputs) made.push_back(output.view());
    check(mirlo_run(context_.get(), given.data(), made.data()));
  }

 private:
  struct Destroy {
    void operator()(mirlo_context *context) const { mirlo_context_destroy(context); }
  };
  const mirlo_code &code() const {
    if (!context_) throw Error(MIRLO_INPUT, "the context was moved");
    return *mirlo_code_of(model_.get());
  }
  void check(int status) const {
    if (status != MIRLO_OK) throw Error(status, mirlo_message(context_.get()));
  }
  std::shared_ptr<mirlo_model> model_;
  std::unique_ptr<mirlo_context, Destroy> context_;
};

}  // namespace mirlo

#endif
