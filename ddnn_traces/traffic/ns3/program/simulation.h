// SPDX-License-Identifier: GPL-2.0-only
//
// Training beside background flows, on ns-3 (Gao 2020, sections 5.1 to 5.3): simulate(SCENARIO, OUT) reads a scenario
// and writes its results as files into the folder OUT. It links to ns-3, so this folder has ns-3's licence: LICENSE.md.

#ifndef DDNN_TRACES_SIMULATION
#define DDNN_TRACES_SIMULATION

#include "background.h"
#include "training.h"

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/uinteger.h"

#include <chrono>

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
    Config::SetDefault("ns3::TcpSocket::DelAckCount", whole("delayed_ack"));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(1)));
    Config::SetDefault("ns3::TcpSocket::ConnCount", UintegerValue(1000)); // connections are never given up
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(NanoSeconds(scenario.Value("min_rto_ns"))));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(NanoSeconds(scenario.Value("min_rto_ns"))));
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

/// Stop when the wall clock has passed the limit; looked at every simulated millisecond.
inline void
StopAt(double limit, Clock::time_point begin, bool* is_late)
{
    if (SecondsSince(begin) < limit)
    {
        Simulator::Schedule(MilliSeconds(1), &StopAt, limit, begin, is_late);
        return;
    }
    *is_late = true;
    Simulator::Stop();
}

/// Run a scenario; its results are files in the folder OUT, summary.json the last.
inline void
simulate(const std::string& path, const std::string& out)
{
    const Scenario scenario(path);
    SetTcp(scenario);
    std::vector<Number> places(scenario.addresses.size());
    const auto begin = Clock::now();
    bool is_late = false;
    std::string ended;
    Number simulated = 0, events = 0;
    {
        Counters counters(out, scenario, places);
        Network network(scenario, counters, out);
        Background background(scenario, network);
        Training training(scenario, network, places, out);
        if (const Number end = scenario.Value("end_ns"))
            Simulator::Stop(NanoSeconds(end));
        StopAt(std::stod(scenario.Word("time_limit_s")), begin, &is_late);
        Simulator::Run();
        ended = is_late ? "time limit" : training.IsDone() ? "iterations" : "simulated time";
        simulated = NowNs();
        events = Simulator::GetEventCount();
        counters.Finish();
        network.Finish(out);
        background.Finish(out);
        Simulator::Destroy();
    }
    std::ofstream(out + "/summary.json") << "{\"ended\": \"" << ended << "\", \"simulated_ns\": " << simulated
                                         << ", \"events\": " << events << ", \"wall_s\": " << SecondsSince(begin) << "}\n";
}

} // namespace ddnn

#endif
