// A program in C#: it registers the provider, opens a model with it, and prints the results of one call.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

class Program
{
    static void Main(string[] words)
    {
        var env = OrtEnv.Instance();
        env.RegisterExecutionProviderLibrary("mirlo", words[0]);
        var devices = env.GetEpDevices().Where(device => device.EpName == "MirloExecutionProvider").ToList();
        using var options = new SessionOptions();
        options.AppendExecutionProvider(env, devices, new Dictionary<string, string> { { "trust", "1" } });
        using var session = new InferenceSession(words[1], options);
        var x = new DenseTensor<float>(Enumerable.Range(0, 16).Select(i => i / 16f).ToArray(), new[] { 2, 8 });
        using var results = session.Run(new[] { NamedOnnxValue.CreateFromTensor("x", x) });
        foreach (var y in results.First().AsEnumerable<float>())
            Console.WriteLine(y.ToString("G9", CultureInfo.InvariantCulture));
    }
}
