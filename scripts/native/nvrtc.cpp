// Compiles CUDA C++ to PTX with NVRTC, text after text: nvrtc LIBRARY BUILTINS HEADER…
// stdin:  "NAME BYTES OPTION…\n" and so many bytes of text, again and again.
// stdout: "ok BYTES\n" and the PTX, or "error BYTES\n" and the log.
#include <dlfcn.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

template <typename F>
F function(void* library, const char* name) {
  F found = reinterpret_cast<F>(dlsym(library, name));
  if (found) return found;
  std::cerr << name << " is not in NVRTC\n";
  std::exit(1);
}

void* open(const char* path, int flags) {
  void* library = dlopen(path, RTLD_NOW | flags);
  if (library) return library;
  std::cerr << dlerror() << '\n';
  std::exit(1);
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> out;
  for (const auto& text : texts) out.push_back(text.c_str());
  return out;
}

using Program = void*;

class Compiler {
 public:
  explicit Compiler(void* library)
      : create_(function<decltype(create_)>(library, "nvrtcCreateProgram")),
        compile_(function<decltype(compile_)>(library, "nvrtcCompileProgram")),
        destroy_(function<decltype(destroy_)>(library, "nvrtcDestroyProgram")),
        logSize_(function<Size>(library, "nvrtcGetProgramLogSize")),
        log_(function<Get>(library, "nvrtcGetProgramLog")),
        ptxSize_(function<Size>(library, "nvrtcGetPTXSize")),
        ptx_(function<Get>(library, "nvrtcGetPTX")) {}

  void addHeader(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    names_.push_back(path.substr(path.rfind('/') + 1));
    headers_.push_back(text.str());
  }

  // Whether the text compiles, and its PTX or the log.
  bool run(const std::string& name, const std::string& text, const std::vector<std::string>& options,
           std::string& out) const {
    Program program = nullptr;
    create_(&program, text.c_str(), name.c_str(), static_cast<int>(names_.size()), pointers(headers_).data(),
            pointers(names_).data());
    const bool ok = compile_(program, static_cast<int>(options.size()), pointers(options).data()) == 0;
    out = ok ? read(program, ptxSize_, ptx_) : read(program, logSize_, log_);
    destroy_(&program);
    return ok;
  }

 private:
  using Size = int (*)(Program, size_t*);
  using Get = int (*)(Program, char*);

  static std::string read(Program program, Size size, Get get) {
    size_t bytes = 0;
    size(program, &bytes);
    std::string text(bytes, '\0');
    get(program, text.data());
    // Both end with a zero.
    if (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }

  int (*create_)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile_)(Program, int, const char* const*);
  int (*destroy_)(Program*);
  Size logSize_;
  Get log_;
  Size ptxSize_;
  Get ptx_;
  std::vector<std::string> names_, headers_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::cerr << "usage: nvrtc LIBRARY BUILTINS HEADER…\n";
    return 2;
  }
  // NVRTC looks for its builtins by name alone, and finds what is loaded already.
  open(arguments[2], RTLD_GLOBAL);
  Compiler compiler(open(arguments[1], RTLD_LOCAL));
  for (int i = 3; i < count; ++i) compiler.addHeader(arguments[i]);

  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string name, option;
    size_t bytes = 0;
    words >> name >> bytes;
    std::vector<std::string> options;
    while (words >> option) options.push_back(option);
    std::string text(bytes, '\0'), out;
    std::cin.read(text.data(), static_cast<std::streamsize>(bytes));
    const bool ok = compiler.run(name, text, options, out);
    std::cout << (ok ? "ok " : "error ") << out.size() << '\n' << out << std::flush;
  }
}
