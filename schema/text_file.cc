#include "schema/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "schema/error.h"

namespace k3 {

void write_text_file(const std::string& path, std::string_view text) {
  const std::string neighbour = path + ".part";
  std::ofstream file(neighbour, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file || std::rename(neighbour.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    std::remove(neighbour.c_str());
    throw Error(path, ": cannot write: ", std::strerror(reason));
  }
}

}  // namespace k3
