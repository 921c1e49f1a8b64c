// SPDX-License-Identifier: GPL-2.0-only
//
// The scenario (engine.py writes it), and files of rows (results.py reads them).

#ifndef DDNN_TRACES_SCENARIO
#define DDNN_TRACES_SCENARIO

#include "ns3/simulator.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace ddnn
{

using namespace ns3;
using Number = int64_t;

constexpr uint16_t TRAINING_PORT = 41000;
constexpr uint16_t BACKGROUND_PORT = 43000;
constexpr uint16_t STREAM_PORT = 44000;
constexpr int BANDS = 3;
constexpr Number MOST_HEADERS = 120; ///< of IPv4 and TCP: a segment is a packet
/// Linux' map of socket priorities to bands, which pfifo_fast has: ToS 0x10 leads to band 0, 0 to 1, 0x08 to 2.
constexpr int BAND_OF_PRIORITY[16] = {1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};

struct Buffer
{
    Number first, last, bytes;
};

struct BackgroundFlow
{
    Number start, src, dst, bytes;
};

/// A scenario file: names, each followed by its values; a list begins with its length.
struct Scenario
{
    std::map<std::string, std::string> words;
    std::map<std::string, std::vector<double>> lists;
    std::vector<std::string> addresses, labels; ///< of hosts
    std::vector<Buffer> buffers;
    std::vector<BackgroundFlow> flows;

    explicit Scenario(const std::string& path)
    {
        std::ifstream file(path);
        std::string kind, name;
        while (file >> kind >> name)
        {
            if (kind == "word")
            {
                file >> words[name];
                continue;
            }
            size_t length = 0;
            file >> length;
            if (name == "addresses" || name == "labels")
            {
                auto& texts = name == "labels" ? labels : addresses;
                texts.resize(length);
                for (auto& text : texts)
                    file >> text;
                continue;
            }
            auto& list = lists[name];
            list.resize(length);
            for (auto& value : list)
                file >> value;
        }
        const auto& parts = lists["buffers"];
        for (size_t i = 0; i < parts.size(); i += 3)
            buffers.push_back({Number(parts[i]), Number(parts[i + 1]), Number(parts[i + 2])});
        const auto& rows = lists["flows"];
        for (size_t i = 0; i < rows.size(); i += 4)
            flows.push_back({Number(rows[i]), Number(rows[i + 1]), Number(rows[i + 2]), Number(rows[i + 3])});
    }

    const std::string& Word(const std::string& name) const
    {
        auto found = words.find(name);
        if (found == words.end())
            throw std::runtime_error("the scenario has no " + name);
        return found->second;
    }

    Number Value(const std::string& name) const
    {
        return std::stoll(Word(name));
    }
};

/// A file of rows, closed with its owner.
class Rows
{
  public:
    Rows(const std::string& folder, const char* name, const char* head)
        : m_file(std::fopen((folder + "/" + name).c_str(), "w"))
    {
        if (!m_file)
            throw std::runtime_error(folder + ": cannot be written");
        std::fprintf(m_file, "%s\n", head);
    }

    ~Rows()
    {
        std::fclose(m_file);
    }

    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;

    template <typename... Values>
    void Write(Values... values)
    {
        const char* separator = "";
        ((std::fprintf(m_file, "%s%lld", separator, static_cast<long long>(values)), separator = ","), ...);
        std::fputc('\n', m_file);
    }

  private:
    std::FILE* m_file;
};

/// A file of rows, each with its step first and TIMES times last; those of the last two steps can be repeated.
template <size_t N, size_t TIMES>
class StepRows
{
  public:
    using Row = std::array<Number, N>;

    StepRows(const std::string& folder, const std::string& name, const char* head)
        : m_rows(folder, name.c_str(), head)
    {
    }

    void Write(const Row& row)
    {
        std::apply([this](auto... values) { m_rows.Write(values...); }, row);
        m_of_step[row[0]].push_back(row);
        while (m_of_step.begin()->first < row[0] - 1)
            m_of_step.erase(m_of_step.begin());
    }

    std::vector<Row> OfStep(Number step) const
    {
        const auto found = m_of_step.find(step);
        return found == m_of_step.end() ? std::vector<Row>{} : found->second;
    }

    /// Write the rows of a step again, for each of the `times` steps that follow it.
    void Repeat(Number step, Number times, Number period)
    {
        const auto rows = OfStep(step);
        for (Number i = 1; i <= times; ++i)
        {
            for (Row row : rows)
            {
                row[0] += i;
                for (size_t k = N - TIMES; k < N; ++k)
                    row[k] += i * period;
                Write(row);
            }
        }
    }

  private:
    Rows m_rows;
    std::map<Number, std::vector<Row>> m_of_step;
};

/// Time that was skipped and not simulated, because nothing changed in it (steady.h).
inline Number g_skipped_ns = 0;

/// The run's time; ns-3's own is earlier by what was skipped.
inline Number
NowNs()
{
    return Simulator::Now().GetNanoSeconds() + g_skipped_ns;
}

/// Schedule what is due at a time of the run.
template <typename... What>
EventId
ScheduleAt(Number ns, What... what)
{
    return Simulator::Schedule(NanoSeconds(ns - NowNs()), what...);
}

} // namespace ddnn

#endif
