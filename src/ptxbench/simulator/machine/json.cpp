#include "json.hpp"

#include <concepts>

namespace ptx {
namespace {

// Builds JSON text; commas are put where they belong.
class Writer {
 public:
  Writer& open(char bracket) {
    separate();
    text_ += bracket;
    fresh_ = true;
    return *this;
  }
  Writer& close(char bracket) {
    text_ += bracket;
    fresh_ = false;
    return *this;
  }
  Writer& key(std::string_view name) {
    value(name);
    text_ += ':';
    fresh_ = true;
    return *this;
  }
  Writer& value(std::string_view text) {
    separate();
    text_ += '"';
    for (const char c : text) {
      if (c == '"' || c == '\\')
        text_ += '\\', text_ += c;
      else if (u8(c) < 0x20)
        text_ += format("\\u%04x", u8(c));
      else
        text_ += c;
    }
    text_ += '"';
    return *this;
  }
  Writer& value(std::integral auto number) {
    separate();
    text_ += std::to_string(number);
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  void separate() {
    if (!fresh_) text_ += ',';
    fresh_ = false;
  }
  std::string text_;
  bool fresh_ = true;
};

// Seven values, one behind the other: a list for each of thousands of sites would be dear to read.
void write_site(Writer& out, size_t kernel, size_t position, const Site& site) {
  out.value(kernel).value(position).value(site.executed).value(site.threads).value(site.flops).value(site.bytes);
  out.value(std::string_view(site.dtype));
}

void write_hazard(Writer& out, const Hazard& hazard) {
  const HazardInfo& info = hazard_info(hazard.kind);
  out.open('{').key("kind").value(info.id).key("race").value(u32(info.race)).key("advice").value(info.advice);
  out.key("kernel")
      .value(hazard.kernel)
      .key("position")
      .value(hazard.position)
      .key("occurrences")
      .value(hazard.occurrences);
  out.key("detail").value(std::string_view(hazard.detail)).close('}');
}

}  // namespace

std::string fault_json(const Fault& fault) {
  Writer out;
  out.open('{').key("kind").value(fault_name(fault.kind)).key("message").value(std::string_view(fault.message));
  out.key("who").value(std::string_view(fault.who));
  out.key("advice")
      .value(std::string_view(fault.advice))
      .key("kernel")
      .value(fault.kernel)
      .key("position")
      .value(fault.position);
  out.key("detail").open('[');
  for (const FaultDetail& line : fault.detail)
    out.open('[')
        .value(line.position)
        .value(std::string_view(line.who))
        .value(std::string_view(line.what))
        .value(u32(line.plural))
        .close(']');
  return out.close(']').close('}').take();
}

std::string run_json(const Run& run) {
  Writer out;
  out.open('{').key("steps").value(run.steps).key("work").value(run.work);
  out.key("memory").value(run.peak_bytes).key("sites").open('[');
  for (size_t kernel = 0; kernel < run.sites.size(); ++kernel)
    for (size_t position = 0; position < run.sites[kernel].size(); ++position)
      if (run.sites[kernel][position].executed) write_site(out, kernel, position, run.sites[kernel][position]);
  out.close(']').key("hazards").open('[');
  for (const auto& [key, hazard] : run.hazards) write_hazard(out, hazard);
  return out.close(']').close('}').take();
}

}  // namespace ptx
