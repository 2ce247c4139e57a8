// run_threads THREADS CALLS: eight contexts of one model of one input and several outputs of dynamic batch, from threads of C++.
#include "mirlo.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

extern "C" const mirlo_code MODEL;

int main(int, char **arguments) {
  const int threads = std::atoi(arguments[1]), calls = std::atoi(arguments[2]);
  mirlo::Model model(MODEL);
  const int64_t width = MODEL.values[0].dims[1];
  std::atomic<int> wrong{0};
  std::vector<std::thread> made;
  for (int i = 0; i < threads; ++i) {
    made.emplace_back([&, i] {
      mirlo::Context context(model);
      std::vector<float> given(static_cast<size_t>((i + 1) * width));
      for (size_t j = 0; j < given.size(); ++j) given[j] = static_cast<float>(j % 13) - 6.f;
      const mirlo::Tensor input(given.data(), {i + 1, width});
      const mirlo::Tensor first = context.run({input})[0];
      for (int call = 1; call < calls; ++call) {
        std::vector<mirlo::Tensor> results = context.run({input});
        wrong += std::memcmp(results[0].data<float>(), first.data<float>(), first.size() * sizeof(float)) != 0;
        std::vector<float> own(first.size());
        std::vector<mirlo::Tensor> outputs;
        for (const mirlo::Tensor &each : results) {
          outputs.emplace_back(outputs.empty() ? own.data() : each.data<float>(), each.shape());
        }
        context.run({input}, outputs);
        wrong += std::memcmp(own.data(), first.data<float>(), first.size() * sizeof(float)) != 0;
      }
    });
  }
  for (std::thread &each : made) each.join();
  try {
    std::vector<float> few(3);
    mirlo::Context(model).run({mirlo::Tensor(few.data(), {3, 1})});
    wrong += 1;
  } catch (const mirlo::Error &error) {
    wrong += error.status != MIRLO_INPUT;
  }
  std::printf("%d wrong\n", wrong.load());
  return wrong != 0;
}
