#include "json.hpp"

namespace ptxbench::record {

namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

// Everything outside printable ASCII becomes '?': names and messages are ASCII, and the reader must not stumble.
std::string quoted(std::string_view value) {
    std::string result = "\"";
    for (const char c : value) {
        if (c == '"' || c == '\\') result += '\\';
        result += (c >= 0x20 && c < 0x7f) ? c : '?';
    }
    return result + "\"";
}

}  // namespace

JsonObject& JsonObject::raw(std::string_view name, std::string_view value) {
    if (body_.size() > 1) body_ += ',';
    body_ += quoted(name);
    body_ += ':';
    body_ += value;
    return *this;
}

JsonObject& JsonObject::text(std::string_view name, std::string_view value) { return raw(name, quoted(value)); }

JsonObject& JsonObject::hex(std::string_view name, const void* data, std::size_t bytes) {
    std::string value = "\"";
    value.reserve(2 * bytes + 2);
    const auto* begin = static_cast<const unsigned char*>(data);
    for (const auto* byte = begin; byte != begin + bytes; ++byte) {
        value += kHexDigits[*byte >> 4];
        value += kHexDigits[*byte & 15];
    }
    return raw(name, value + "\"");
}

JsonObject& JsonObject::list(std::string_view name, const std::vector<std::string>& items) {
    std::string value = "[";
    for (const std::string& item : items) {
        if (value.size() > 1) value += ',';
        value += item;
    }
    return raw(name, value + "]");
}

}  // namespace ptxbench::record
