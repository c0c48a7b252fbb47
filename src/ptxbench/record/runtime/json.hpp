// Writes one JSON object field by field; the only JSON the recorder needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ptxbench::record {

class JsonObject {
public:
    JsonObject& number(std::string_view name, std::uint64_t value) { return raw(name, std::to_string(value)); }
    JsonObject& integer(std::string_view name, std::int64_t value) { return raw(name, std::to_string(value)); }
    JsonObject& flag(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
    JsonObject& text(std::string_view name, std::string_view value);
    JsonObject& hex(std::string_view name, const void* data, std::size_t bytes);
    // `items` are finished JSON values.
    JsonObject& list(std::string_view name, const std::vector<std::string>& items);

    template <typename Numbers>
    JsonObject& numbers(std::string_view name, const Numbers& values) {
        std::vector<std::string> items;
        for (const auto value : values) items.push_back(std::to_string(value));
        return list(name, items);
    }

    std::string finish() const { return body_ + "}"; }

private:
    JsonObject& raw(std::string_view name, std::string_view value);

    std::string body_ = "{";
};

}  // namespace ptxbench::record
