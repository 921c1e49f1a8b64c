// SPDX-License-Identifier: GPL-2.0-only
//
// Training beside background flows, on ns-3 (Gao 2020, sections 5.1 to 5.3): simulate(SCENARIO, OUT) reads a scenario
// and writes its results as files into the folder OUT. It links to ns-3, so this folder has ns-3's licence: LICENSE.md.

#ifndef DDNN_TRACES_SIMULATION
#define DDNN_TRACES_SIMULATION

#include "background.h"
#include "stream.h"
#include "training.h"

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/uinteger.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <sys/prctl.h>
#include <unistd.h>

namespace ddnn
{

/// TCP as the scenario has it; set before any socket exists.
inline void
SetTcp(const Scenario& scenario)
{
    const auto whole = [&scenario](const char* name) { return UintegerValue(scenario.Value(name)); };
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName(scenario.Word("tcp_type"))));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", whole("segment_bytes"));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", whole("buffer_bytes"));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", whole("buffer_bytes"));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", whole("initial_window"));
    Config::SetDefault("ns3::TcpSocket::InitialSlowStartThreshold", whole("initial_ssthresh"));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(scenario.Value("sack") != 0));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", whole("delayed_ack"));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(scenario.Word("ecn_threshold") == "none" ? "Off" : "On"));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(1)));
    Config::SetDefault("ns3::TcpSocket::ConnCount", UintegerValue(1000)); // connections are never given up
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(NanoSeconds(scenario.Value("background_min_rto_ns"))));
    // closed sockets stay for twice this time, and ns-3 searches all sockets for each packet; a last packet is sent again before
    Config::SetDefault("ns3::TcpSocketBase::MaxSegLifetime", DoubleValue(2e-9 * scenario.Value("background_min_rto_ns")));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MicroSeconds(1)));
    Config::SetDefault("ns3::PcapFileWrapper::CaptureSize", whole("snaplen"));
    Config::SetDefault("ns3::PcapFileWrapper::NanosecMode", BooleanValue(true));
}

using Clock = std::chrono::steady_clock;

inline double
SecondsSince(Clock::time_point begin)
{
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Looks at the wall clock every simulated millisecond: stops the run at its limit, and once a second tells on the
/// standard output which share of the run is done.
class Watch
{
  public:
    Watch(const Scenario& scenario, const Training& training)
        : m_limit_s(std::stod(scenario.Word("time_limit_s"))),
          m_end(scenario.Value("end_ns")),
          m_training(training)
    {
        Look();
    }

    bool IsLate() const
    {
        return m_is_late;
    }

    double Seconds() const
    {
        return SecondsSince(m_begin);
    }

  private:
    void Look()
    {
        m_is_late = Seconds() >= m_limit_s;
        if (m_is_late)
        {
            Simulator::Stop();
            return;
        }
        if (SecondsSince(m_told) >= 1)
        {
            m_told = Clock::now();
            std::cout << "done " << (m_end ? double(NowNs()) / m_end : m_training.ShareDone()) << std::endl;
        }
        Simulator::Schedule(MilliSeconds(1), &Watch::Look, this);
    }

    const double m_limit_s;
    const Number m_end;
    const Training& m_training;
    const Clock::time_point m_begin = Clock::now();
    Clock::time_point m_told = m_begin;
    bool m_is_late = false;
};

inline void
StopNow()
{
    Simulator::Stop();
}

/// Skips iterations that would repeat the one before: no background flow, no packet sent again, and the iteration and
/// the transfers to each worker lasted as long as in the two before, within a tolerance. ns-3's own state stays as it
/// is; the run's time goes on (g_skipped_ns), and what was recorded of the last iteration is counted again.
class Steady
{
  public:
    Steady(const Scenario& scenario, Counters& counters, Network& network, Background& background, Training& training)
        : m_tolerance(std::stod(scenario.Word("skip_tolerance"))),
          m_end(scenario.Value("end_ns")),
          m_counters(counters),
          m_network(network),
          m_background(background),
          m_training(training)
    {
        AwaitEnd();
        if (m_tolerance > 0)
            training.OnStep([this] { OnStep(); });
    }

    Number Skipped() const
    {
        return m_skipped;
    }

  private:
    static constexpr int WINDOW = 2; ///< iterations that were like the one before

    void AwaitEnd()
    {
        m_stop.Cancel();
        if (m_end)
            m_stop = ScheduleAt(m_end, &StopNow);
    }

    void OnStep()
    {
        const Number now = NowNs(), period = now - m_last;
        auto times = m_training.TransferTimes();
        times[-1] = period;
        const bool were_new = m_counters.Record();
        m_network.EndStep();
        const bool is_quiet = m_background.IsQuiet() && m_background.NextNs() == m_next;
        m_alike = were_new && is_quiet && AreAlike(times) ? m_alike + 1 : 0;
        m_next = m_background.NextNs();
        m_times = std::move(times);
        m_last = now;
        if (m_alike >= WINDOW)
            Skip(period);
    }

    bool AreAlike(const std::map<Number, Number>& times) const
    {
        return times.size() == m_times.size() && std::equal(times.begin(), times.end(), m_times.begin(), [this](auto& a, auto& b) {
                   return a.first == b.first && std::abs(a.second - b.second) <= m_tolerance * b.second;
               });
    }

    /// Skip whole iterations, up to the next arrival, the end, or the last iteration but one.
    void Skip(Number period)
    {
        Number most = m_training.StepsLeft() - 1;
        for (Number until : {m_background.NextNs() < 0 ? 0 : m_background.NextNs(), m_end})
            if (until > 0)
                most = std::min(most, (until - m_last - 1) / period);
        if (most < 1)
            return;
        m_training.Repeat(most, period);
        m_counters.Repeat(most, period);
        m_network.Repeat(most);
        g_skipped_ns += most * period;
        m_skipped += most;
        m_last += most * period;
        m_background.Await();
        AwaitEnd();
    }

    double m_tolerance;
    Number m_end;
    Counters& m_counters;
    Network& m_network;
    Background& m_background;
    Training& m_training;
    EventId m_stop;
    int m_alike = 0;
    Number m_last = 0, m_next = -1, m_skipped = 0;
    std::map<Number, Number> m_times;
};

/// End with the process that started this one, which reads the results. DDNN_TRACES_PARENT: its number; it may be gone.
inline void
EndWithParent()
{
    const char* parent = std::getenv("DDNN_TRACES_PARENT");
    if (!parent)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (std::to_string(getppid()) != parent)
        throw std::runtime_error("the process that started this one has ended");
}

/// Run a scenario; its results are files in the folder OUT, summary.json the last.
inline void
simulate(const std::string& path, const std::string& out)
{
    EndWithParent();
    const Scenario scenario(path);
    SetTcp(scenario);
    std::vector<Number> places(scenario.addresses.size());
    std::string ended;
    double wall_s = 0;
    Number simulated = 0, events = 0, skipped = 0;
    {
        Counters counters(out, scenario, places);
        Network network(scenario, counters, out);
        Background background(scenario, network);
        Stream stream(scenario, network);
        std::vector<std::unique_ptr<Training>> jobs;
        for (Number i = 0; i < scenario.Value("jobs"); ++i)
            jobs.push_back(std::make_unique<Training>(scenario, network, i, places, out));
        Steady steady(scenario, counters, network, background, *jobs[0]);
        const Watch watch(scenario, *jobs[0]);
        Simulator::Run();
        ended = watch.IsLate() ? "time limit" : jobs[0]->IsDone() ? "iterations" : "simulated time";
        simulated = NowNs();
        events = Simulator::GetEventCount();
        skipped = steady.Skipped();
        counters.Finish();
        network.Finish(out);
        background.Finish(out);
        stream.Finish(out);
        Simulator::Destroy();
        wall_s = watch.Seconds();
    }
    std::ofstream(out + "/summary.json") << "{\"ended\": \"" << ended << "\", \"simulated_ns\": " << simulated
                                         << ", \"events\": " << events << ", \"skipped_steps\": " << skipped
                                         << ", \"wall_s\": " << wall_s << "}\n";
}

} // namespace ddnn

#endif
