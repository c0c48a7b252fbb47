// Executed counts of every SASS instruction of one kernel launch at a time, through CUPTI's SASS metrics.
//
// The order is CUPTI's: configure, enable, launch one kernel, synchronise, flush, disable. Once per process: on CUPTI
// 13.0.85 a second enabled range returns no records, and so does the first one when a memset, a copy or another kernel
// runs after the configuration. None of this is reported as an error, so the caller checks that records came.

#include <cuda.h>
#include <cupti_profiler_target.h>
#include <cupti_result.h>
#include <cupti_sass_metrics.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::array<const char*, 2> kMetrics = {"smsp__sass_inst_executed",
                                                 "smsp__sass_thread_inst_executed_pred_on"};

struct Row {
    const char* function;
    std::uint64_t offset;
    std::uint64_t warps;
    std::uint64_t threads;
};

struct Counters {
    std::uint32_t device = 0;
    bool configured = false;
    std::array<std::uint64_t, 2> metric_ids{};
    // Keys own the function names that `rows` points to.
    std::map<std::pair<std::string, std::uint64_t>, std::array<std::uint64_t, 2>> counts;
    std::vector<Row> rows;
    std::string error;

    bool ok(CUptiResult result, const char* what) {
        if (result == CUPTI_SUCCESS) return true;
        const char* text = nullptr;
        cuptiGetResultString(result, &text);
        error = std::string(what) + ": " + (text != nullptr ? text : "unknown error");
        return false;
    }

    bool configure(const char* chip) {
        CUpti_Profiler_Initialize_Params initialize{};
        initialize.structSize = CUpti_Profiler_Initialize_Params_STRUCT_SIZE;
        if (!ok(cuptiProfilerInitialize(&initialize), "cuptiProfilerInitialize")) return false;
        std::array<CUpti_SassMetrics_Config, 2> configs{};
        for (std::size_t i = 0; i < kMetrics.size(); ++i) {
            CUpti_SassMetrics_GetProperties_Params query{};
            query.structSize = CUpti_SassMetrics_GetProperties_Params_STRUCT_SIZE;
            query.pChipName = chip;
            query.pMetricName = kMetrics[i];
            if (!ok(cuptiSassMetricsGetProperties(&query), "cuptiSassMetricsGetProperties")) return false;
            metric_ids[i] = query.metric.metricId;
            configs[i].metricId = query.metric.metricId;
            configs[i].outputGranularity = CUPTI_SASS_METRICS_OUTPUT_GRANULARITY_GPU;
        }
        CUpti_SassMetricsSetConfig_Params params{};
        params.structSize = CUpti_SassMetricsSetConfig_Params_STRUCT_SIZE;
        params.numOfMetricConfig = configs.size();
        params.pConfigs = configs.data();
        params.deviceIndex = device;
        configured = ok(cuptiSassMetricsSetConfig(&params), "cuptiSassMetricsSetConfig");
        return configured;
    }

    bool enable() {
        CUpti_SassMetricsEnable_Params params{};
        params.structSize = CUpti_SassMetricsEnable_Params_STRUCT_SIZE;
        params.enableLazyPatching = 1;
        return ok(cuptiSassMetricsEnable(&params), "cuptiSassMetricsEnable");
    }

    bool disable() {
        CUpti_SassMetricsDisable_Params params{};
        params.structSize = CUpti_SassMetricsDisable_Params_STRUCT_SIZE;
        return ok(cuptiSassMetricsDisable(&params), "cuptiSassMetricsDisable");
    }

    bool flush() {
        counts.clear();
        rows.clear();
        CUpti_SassMetricsGetDataProperties_Params properties{};
        properties.structSize = CUpti_SassMetricsGetDataProperties_Params_STRUCT_SIZE;
        if (!ok(cuptiSassMetricsGetDataProperties(&properties), "cuptiSassMetricsGetDataProperties")) return false;
        const std::size_t records = properties.numOfPatchedInstructionRecords;
        const std::size_t instances = properties.numOfInstances;
        if (records == 0 || instances == 0) return true;

        std::vector<CUpti_SassMetrics_InstanceValue> values(records * instances);
        std::vector<CUpti_SassMetrics_Data> data(records);
        for (std::size_t i = 0; i < records; ++i) {
            data[i].structSize = sizeof(CUpti_SassMetrics_Data);
            data[i].pInstanceValues = &values[i * instances];
        }
        CUpti_SassMetricsFlushData_Params params{};
        params.structSize = CUpti_SassMetricsFlushData_Params_STRUCT_SIZE;
        params.numOfPatchedInstructionRecords = records;
        params.numOfInstances = instances;
        params.pMetricsData = data.data();
        if (!ok(cuptiSassMetricsFlushData(&params), "cuptiSassMetricsFlushData")) return false;
        for (const CUpti_SassMetrics_Data& record : data) merge(record, instances);
        for (const auto& [key, value] : counts) rows.push_back({key.first.c_str(), key.second, value[0], value[1]});
        return true;
    }

    // A record holds one metric of one instruction, so both metrics of an instruction meet here.
    void merge(const CUpti_SassMetrics_Data& record, std::size_t instances) {
        auto& count = counts[{record.functionName != nullptr ? record.functionName : "", record.pcOffset}];
        for (std::size_t i = 0; i < instances; ++i) {
            for (std::size_t metric = 0; metric < metric_ids.size(); ++metric) {
                if (record.pInstanceValues[i].metricId == metric_ids[metric]) {
                    count[metric] += record.pInstanceValues[i].value;
                }
            }
        }
    }

    void unset() {
        if (!configured) return;
        CUpti_SassMetricsUnsetConfig_Params params{};
        params.structSize = CUpti_SassMetricsUnsetConfig_Params_STRUCT_SIZE;
        params.deviceIndex = device;
        configured = !ok(cuptiSassMetricsUnsetConfig(&params), "cuptiSassMetricsUnsetConfig");
    }
};

}  // namespace

// Every function but `open` and `close` returns 0, or -1 with the reason in `counters_error`.
extern "C" {

Counters* counters_open() { return new Counters(); }

void counters_close(Counters* counters) {
    counters->unset();
    delete counters;
}

const char* counters_error(const Counters* counters) { return counters->error.c_str(); }

// The current context's device must be `device`.
int counters_configure(Counters* counters, const char* chip, std::uint32_t device) {
    counters->device = device;
    return counters->configure(chip) ? 0 : -1;
}

int counters_enable(Counters* counters) { return counters->enable() ? 0 : -1; }

int counters_disable(Counters* counters) { return counters->disable() ? 0 : -1; }

// Number of rows, to be read with `counters_rows` before the next call; -1 on failure.
long counters_flush(Counters* counters) {
    return counters->flush() ? static_cast<long>(counters->rows.size()) : -1;
}

const Row* counters_rows(const Counters* counters) { return counters->rows.data(); }

}  // extern "C"
