#include "json.hpp"

namespace ptx {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (u8(c) < 0x20)
      out += format("\\u%04x", u8(c));
    else
      out += c;
  }
  return out + '"';
}

template <class Items, class Print>
std::string list(const Items& items, Print print) {
  std::string out = "[";
  for (const auto& item : items) {
    const std::string text = print(item);
    if (text.empty()) continue;
    if (out.size() > 1) out += ',';
    out += text;
  }
  return out + ']';
}

std::string number(u64 value) { return std::to_string(value); }

std::string site_json(size_t kernel, size_t position, const Site& site) {
  return "[" + number(kernel) + "," + number(position) + "," + number(site.executed) + "," + number(site.threads) + "," +
         number(site.flops) + "," + number(site.bytes) + "," + quoted(site.dtype) + "]";
}

std::string hazard_json(const Hazard& hazard) {
  const HazardInfo& info = hazard_info(hazard.kind);
  return "{\"kind\":" + quoted(info.id) + ",\"race\":" + (info.race ? "true" : "false") + ",\"advice\":" + quoted(info.advice) +
         ",\"kernel\":" + number(hazard.kernel) + ",\"position\":" + number(hazard.position) +
         ",\"occurrences\":" + number(hazard.occurrences) + ",\"detail\":" + quoted(hazard.detail) + "}";
}

}  // namespace

std::string fault_json(const Fault& fault) {
  return "{\"kind\":" + quoted(fault_name(fault.kind)) + ",\"message\":" + quoted(fault.message) + ",\"advice\":" + quoted(fault.advice) +
         ",\"kernel\":" + std::to_string(fault.kernel) + ",\"position\":" + std::to_string(fault.position) + ",\"detail\":" +
         list(fault.detail, [](const FaultDetail& line) { return "[" + std::to_string(line.position) + "," + quoted(line.text) + "]"; }) + "}";
}

std::string run_json(const Run& run) {
  std::string sites;
  for (size_t kernel = 0; kernel < run.sites.size(); ++kernel)
    for (size_t position = 0; position < run.sites[kernel].size(); ++position)
      if (run.sites[kernel][position].executed)
        sites += (sites.empty() ? "" : ",") + site_json(kernel, position, run.sites[kernel][position]);
  return "{\"steps\":" + number(run.steps) + ",\"sites\":[" + sites + "],\"hazards\":" +
         list(run.hazards, [](const auto& entry) { return hazard_json(entry.second); }) + "}";
}

}  // namespace ptx
