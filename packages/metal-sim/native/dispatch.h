// One dispatch: checks the request, lends guarded copies of the buffers, runs the workers and words the reports.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine.h"
#include "line_table.h"
#include "runtime.h"

namespace metal_sim {

/** A finding with the texts it points to. */
struct Report {
  std::string kind, message, file, other_file, argument;
  metal_sim_report view{};
};

class Dispatch : public EventSink, public CheckSink {
 public:
  Dispatch(const Module& module, const LineTable& lines, const Image& image, const metal_sim_dispatch& request);
  void run();

  std::deque<Report> reports;
  double milliseconds = 0;
  uint64_t switches = 0;
  uint32_t threadgroup_bytes = 0;

  void event(const Event& event) override;
  void found(Finding kind, const Region& region, int64_t offset, uint32_t bytes, const Access& now,
             const Access* other) override;

 private:
  /** Bindings that overlap share a block. */
  struct Block {
    uintptr_t begin, end;
    GuardedBlock copy;
  };
  struct Bound {
    uint32_t index;
    std::string name;
    uintptr_t begin;
    uint64_t length;
  };

  bool refuse(const std::string& message);
  bool check_request();
  bool copy_buffers();
  bool bind();
  void execute();
  void return_buffers();
  void order_threadgroups(uint64_t total);
  std::string name_of(uint32_t index) const;
  Place place_of(uintptr_t pc) const;
  Who who_of(const Access& access) const;
  void add(Report report, const std::string& detail);

  const Module& module_;
  const LineTable& lines_;
  const Image image_;
  const metal_sim_dispatch& request_;
  Job job_{};
  std::unique_ptr<Checker> checker_;
  std::vector<Block> blocks_;
  std::vector<Bound> bound_;
  std::vector<uint32_t> order_;
  std::mutex mutex_;
  std::map<std::string, Report*> by_place_;
};

}  // namespace metal_sim
