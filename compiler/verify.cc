#include "compiler/verify.h"

#include <iostream>

#include "compiler/report.h"
#include "passes/progress.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/pack_reader.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

constexpr size_t kFaultsShown = 20;  // a terminal's worth; --json has them all

void print_json(const PackReader& pack, const std::vector<std::string>& faults) {
  JsonWriter json(std::cout, 2);
  json.begin_object();
  json.member("pack", pack.path());
  json.member("file_bytes", pack.file_bytes());
  json.member("payload_xxh3", hex_digits(pack.payload_xxh3()));
  json.member("whole", faults.empty());
  json.key("faults");
  json.begin_array();
  for (const std::string& fault : faults) json.value(fault);
  json.end_array();
  json.end_object();
  std::cout << '\n';
}

}  // namespace

bool run_verify(const VerifyRequest& request) {
  const PackReader pack(request.pack);
  Progress progress(Progress::style_for_stderr(request.quiet));
  const Stopwatch watch;
  progress.start("verify", pack.file_bytes());
  int64_t reported = 0;
  const std::vector<std::string> faults = pack.verify([&](int64_t done) {
    progress.advance(done - reported);
    reported = done;
  });
  progress.finish();
  const double seconds = watch.seconds();

  if (request.json) {
    print_json(pack, faults);
    return faults.empty();
  }
  if (faults.empty()) {
    const auto rate =
        static_cast<int64_t>(static_cast<double>(pack.file_bytes()) / std::max(seconds, 1e-9));
    std::cout << pack.path() << ": OK, " << format_count(pack.file_bytes()) << " bytes, payload "
              << hex_digits(pack.payload_xxh3()) << ", " << format_bytes(rate) << "/s\n";
    return true;
  }
  for (size_t i = 0; i < std::min(faults.size(), kFaultsShown); ++i) {
    std::cerr << "k3c: " << faults[i] << '\n';
  }
  if (faults.size() > kFaultsShown) {
    std::cerr << "k3c: " << pack.path() << ": " << faults.size() - kFaultsShown
              << " more faults, all of them with --json\n";
  }
  return false;
}

}  // namespace k3
