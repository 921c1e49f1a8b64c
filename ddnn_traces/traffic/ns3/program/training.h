// SPDX-License-Identifier: GPL-2.0-only
//
// Ring all-reduce of data-parallel training beside background flows, on ns-3 (Gao 2020, sections 5.1 to 5.3).
// simulate(SCENARIO, OUT) reads a scenario (engine.py writes it) and writes its results as files into the folder OUT
// (results.py reads them). It links to ns-3, so this file has ns-3's licence: see LICENSE.md beside it.

#ifndef DDNN_TRACES_TRAINING_H
#define DDNN_TRACES_TRAINING_H

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/inet-socket-address.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-l3-protocol.h"
#include "ns3/ipv4-static-routing-helper.h"
#include "ns3/node-container.h"
#include "ns3/point-to-point-helper.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/queue-disc.h"
#include "ns3/simulator.h"
#include "ns3/socket.h"
#include "ns3/string.h"
#include "ns3/tcp-socket-factory.h"
#include "ns3/trace-helper.h"
#include "ns3/traffic-control-helper.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace ddnn
{

using namespace ns3;
using Number = int64_t;

constexpr uint16_t TRAINING_PORT = 41000;
constexpr uint16_t BACKGROUND_PORT = 43000;
constexpr int BANDS = 3;
constexpr Number MOST_HEADERS = 120; ///< of IPv4 and TCP: a segment is a packet
/// Linux' map of socket priorities to bands, which pfifo_fast has: ToS 0x10 leads to band 0, 0 to 1, 0x08 to 2.
constexpr int BAND_OF_PRIORITY[16] = {1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};

// --- the scenario

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
    std::vector<std::string> addresses;
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
            if (name == "addresses")
            {
                addresses.resize(length);
                for (auto& address : addresses)
                    file >> address;
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

inline Number
NowNs()
{
    return Simulator::Now().GetNanoSeconds();
}

// --- what a capture of each host would hold

/// Packets and bytes of what each host sends, by flow, by window and by the sender's step.
class Counters
{
  public:
    Counters(const std::string& out, const Scenario& scenario, const std::vector<Number>& places)
        : m_window(scenario.Value("window_ns")),
          m_snaplen(scenario.Value("snaplen")),
          m_places(places),
          m_out(out),
          m_windows(out, "windows.csv", "flow,window,packets,wire_bytes,payload_bytes,retransmitted_bytes"),
          m_steps(out, "step_flows.csv", "flow,place,packets,wire_bytes,payload_bytes,retransmitted_bytes")
    {
    }

    /// Count a packet at the begin of its transmission: PPP, IPv4 without options, TCP.
    void Sent(Number host, Ptr<const Packet> packet)
    {
        uint8_t head[42];
        if (packet->CopyData(head, sizeof head) < sizeof head || head[11] != 6)
            return;
        const auto wide = [&head](int i) { return uint64_t(head[i]) << 24 | head[i + 1] << 16 | head[i + 2] << 8 | head[i + 3]; };
        const uint64_t addresses = wide(14) << 32 | wide(18);
        const uint64_t ports = wide(22);
        auto [place, is_new] = m_numbers.try_emplace({addresses, ports}, m_flows.size());
        if (is_new)
            m_flows.push_back(Flow{host, Number(wide(18)), Number(ports >> 16), Number(ports & 0xFFFF), NowNs()});
        Count(place->second, packet->GetSize(), Number(head[4]) << 8 | head[5], head[34] >> 4, head[35], uint32_t(wide(26)));
    }

    void Finish()
    {
        Rows rows(m_out, "flows.csv",
                  "flow,src,dst_address,src_port,dst_port,first_ns,last_ns,packets,wire_bytes,ip_bytes,payload_bytes,captured_bytes,"
                  "syn_packets,fin_packets,rst_packets,retransmitted_packets,retransmitted_bytes,out_of_order_packets,"
                  "out_of_order_bytes");
        for (size_t i = 0; i < m_flows.size(); ++i)
        {
            Flow& f = m_flows[i];
            Flush(i, f.in_window, m_windows);
            Flush(i, f.in_step, m_steps);
            rows.Write(i, f.src, f.dst, f.src_port, f.dst_port, f.first, f.last, f.packets, f.wire, f.ip, f.payload, f.captured, f.syn,
                       f.fin, f.rst, f.again_packets, f.again, f.late_packets, f.late);
        }
    }

  private:
    struct Part
    {
        Number key = -1, packets = 0, wire = 0, payload = 0, again = 0;
    };

    struct Flow
    {
        Number src, dst, src_port, dst_port, first;
        Number last = 0, packets = 0, wire = 0, ip = 0, payload = 0, captured = 0, syn = 0, fin = 0, rst = 0;
        Number again_packets = 0, again = 0, late_packets = 0, late = 0;
        Number next = -1;                ///< sequence number after the highest that was sent, not modulo 2^32
        std::map<Number, Number> gaps{}; ///< begin and end of what is below and was not sent: lost in the host's queue
        Part in_window{}, in_step{};
    };

    struct Key
    {
        uint64_t addresses, ports;
        bool operator==(const Key& other) const
        {
            return addresses == other.addresses && ports == other.ports;
        }
    };

    struct Hash
    {
        size_t operator()(const Key& key) const
        {
            return (key.addresses * 0x9E3779B97F4A7C15ULL) ^ (key.ports * 0xC2B2AE3D27D4EB4FULL);
        }
    };

    void Count(size_t number, Number wire, Number ip, int words, int flags, uint32_t sequence)
    {
        Flow& f = m_flows[number];
        const Number payload = ip - 20 - 4 * words;
        const bool syn = flags & 2;
        f.last = NowNs();
        ++f.packets;
        f.wire += wire;
        f.ip += ip;
        f.payload += payload;
        f.captured += std::min(wire, m_snaplen);
        f.syn += syn;
        f.fin += flags & 1;
        f.rst += (flags & 4) != 0;
        const Number again = payload > 0 ? Repeated(f, Whole(f, sequence), payload) : 0;
        if (syn)
            f.next = Number(sequence) + 1;
        Add(number, f.in_window, f.last / m_window, wire, payload, again, m_windows);
        Add(number, f.in_step, m_places[f.src], wire, payload, again, m_steps);
    }

    /// A sequence number without the modulo, by the one that is expected.
    static Number Whole(const Flow& f, uint32_t sequence)
    {
        return f.next < 0 ? Number(sequence) : f.next + int32_t(sequence - uint32_t(f.next));
    }

    /// Bytes of a segment that were sent before; counts repeated segments, and those that fill gaps.
    static Number Repeated(Flow& f, Number begin, Number bytes)
    {
        const Number end = begin + bytes;
        if (f.next < 0 || begin >= f.next)
        {
            if (f.next >= 0 && begin > f.next)
                f.gaps[f.next] = begin;
            f.next = end;
            return 0;
        }
        Number fresh = std::max<Number>(0, end - f.next);
        f.next = std::max(f.next, end);
        auto gap = f.gaps.upper_bound(begin);
        if (gap != f.gaps.begin())
            --gap;
        while (gap != f.gaps.end() && gap->first < end)
        {
            const auto [from, to] = *gap;
            const Number low = std::max(from, begin), high = std::min(to, end);
            if (low >= high)
            {
                ++gap;
                continue;
            }
            fresh += high - low;
            gap = f.gaps.erase(gap);
            if (from < low)
                f.gaps[from] = low;
            if (high < to)
                gap = f.gaps.emplace(high, to).first;
        }
        const bool is_late = fresh > 0;
        (is_late ? f.late_packets : f.again_packets) += 1;
        f.late += fresh;
        f.again += bytes - fresh;
        return bytes - fresh;
    }

    static void Add(size_t flow, Part& part, Number key, Number wire, Number payload, Number again, Rows& rows)
    {
        if (part.key != key)
        {
            Flush(flow, part, rows);
            part.key = key;
        }
        ++part.packets;
        part.wire += wire;
        part.payload += payload;
        part.again += again;
    }

    static void Flush(size_t flow, Part& part, Rows& rows)
    {
        if (part.packets)
            rows.Write(flow, part.key, part.packets, part.wire, part.payload, part.again);
        part = Part{};
    }

    Number m_window, m_snaplen;
    const std::vector<Number>& m_places;
    std::string m_out;
    Rows m_windows, m_steps;
    std::unordered_map<Key, size_t, Hash> m_numbers;
    std::vector<Flow> m_flows;
};

// --- the network

/// Hosts on one top-of-rack switch: a router with a queue of three bands at each port, as at each host.
class Network
{
  public:
    Network(const Scenario& scenario, Counters& counters, const std::string& out)
        : m_scenario(scenario),
          m_counters(counters)
    {
        const size_t hosts = scenario.addresses.size();
        m_hosts.Create(hosts);
        m_switch.Create(1);
        InternetStackHelper internet;
        internet.SetIpv6StackInstall(false);
        internet.Install(m_hosts);
        internet.Install(m_switch);
        for (size_t i = 0; i < hosts; ++i)
            Connect(i);
        if (scenario.Value("pcap"))
            Capture(out);
    }

    Ptr<Node> Host(size_t i) const
    {
        return m_hosts.Get(i);
    }

    InetSocketAddress Address(size_t i, uint16_t port) const
    {
        return {Ipv4Address(m_scenario.addresses[i].c_str()), port};
    }

    /// Packets dropped in each band of the hosts' queues and of the switch's.
    void Finish(const std::string& out) const
    {
        Rows rows(out, "drops.csv", "at_switch,band,packets");
        for (int at_switch = 0; at_switch < 2; ++at_switch)
            for (int band = 0; band < BANDS; ++band)
                rows.Write(at_switch, band, m_drops[at_switch][band]);
    }

  private:
    void Connect(size_t i)
    {
        PointToPointHelper link;
        link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(m_scenario.lists.at("bit_per_s")[i]))));
        link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(m_scenario.Value("link_delay_ns"))));
        link.SetDeviceAttribute("Mtu", UintegerValue(m_scenario.Value("segment_bytes") + MOST_HEADERS));
        link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1p"));
        NetDeviceContainer ends = link.Install(m_hosts.Get(i), m_switch.Get(0));
        m_devices.Add(ends.Get(0));
        AddQueue(ends.Get(0), 0);
        AddQueue(ends.Get(1), 1);
        const Ipv4Address host(m_scenario.addresses[i].c_str());
        const Ipv4Address port(host.Get() + (1u << 17)); // another address, of the switch's end
        const uint32_t of_host = AddAddress(ends.Get(0), host);
        const uint32_t of_switch = AddAddress(ends.Get(1), port);
        Ipv4StaticRoutingHelper routing;
        routing.GetStaticRouting(m_hosts.Get(i)->GetObject<Ipv4>())->SetDefaultRoute(port, of_host);
        routing.GetStaticRouting(m_switch.Get(0)->GetObject<Ipv4>())->AddHostRouteTo(host, of_switch);
        ends.Get(0)->TraceConnectWithoutContext("PhyTxBegin", MakeBoundCallback(&Network::Sent, &m_counters, Number(i)));
    }

    static uint32_t AddAddress(Ptr<NetDevice> device, Ipv4Address address)
    {
        Ptr<Ipv4> ip = device->GetNode()->GetObject<Ipv4>();
        const uint32_t number = ip->AddInterface(device);
        ip->AddAddress(number, Ipv4InterfaceAddress(address, Ipv4Mask("255.255.255.255")));
        ip->SetUp(number);
        return number;
    }

    /// pfifo_fast has one limit for all bands; prio has three queues, each with its own.
    void AddQueue(Ptr<NetDevice> device, int at_switch)
    {
        const StringValue limit(m_scenario.Word("queue_limit"));
        TrafficControlHelper control;
        if (m_scenario.Word("queue_disc") == "pfifo_fast")
        {
            control.SetRootQueueDisc("ns3::PfifoFastQueueDisc", "MaxSize", limit);
        }
        else
        {
            std::string map;
            for (int band : BAND_OF_PRIORITY)
                map += (map.empty() ? "" : " ") + std::to_string(band);
            const uint16_t root = control.SetRootQueueDisc("ns3::PrioQueueDisc", "Priomap", StringValue(map));
            const auto classes = control.AddQueueDiscClasses(root, BANDS, "ns3::QueueDiscClass");
            control.AddChildQueueDiscs(root, classes, "ns3::FifoQueueDisc", "MaxSize", limit);
        }
        Ptr<QueueDisc> queue = control.Install(device).Get(0);
        Number* drops = m_drops[at_switch]; // an array would be copied
        queue->TraceConnectWithoutContext("DropBeforeEnqueue", MakeBoundCallback(&Network::Dropped, drops));
    }

    static void Sent(Counters* counters, Number host, Ptr<const Packet> packet)
    {
        counters->Sent(host, packet);
    }

    static void Dropped(Number* drops, Ptr<const QueueDiscItem> item, const char*)
    {
        SocketPriorityTag tag;
        item->GetPacket()->PeekPacketTag(tag);
        ++drops[BAND_OF_PRIORITY[tag.GetPriority() & 15]];
    }

    void Capture(const std::string& out)
    {
        PcapHelper helper;
        const Time begin = NanoSeconds(m_scenario.Value("begin_ns"));
        for (size_t i = 0; i < m_hosts.GetN(); ++i)
        {
            const std::string name = out + "/worker-" + std::to_string(i + 1) + "-tcpdump.pcap";
            auto file = helper.CreateFile(name, std::ios::out | std::ios::binary, PcapHelper::DLT_PPP, m_scenario.Value("snaplen"));
            m_devices.Get(i)->TraceConnectWithoutContext("PromiscSniffer", MakeBoundCallback(&Network::Write, file, begin));
        }
    }

    static void Write(Ptr<PcapFileWrapper> file, Time begin, Ptr<const Packet> packet)
    {
        file->Write(begin + Simulator::Now(), packet);
    }

    const Scenario& m_scenario;
    Counters& m_counters;
    NodeContainer m_hosts, m_switch;
    NetDeviceContainer m_devices;
    Number m_drops[2][BANDS] = {};
};

// --- connections

/// The sending end of a TCP connection: keeps the socket's buffer full, in whole segments.
class Sender
{
  public:
    Sender(Ptr<Node> node, const InetSocketAddress& to, uint8_t tos, uint32_t segment)
        : m_socket(Socket::CreateSocket(node, TcpSocketFactory::GetTypeId())),
          m_segment(segment)
    {
        m_socket->SetIpTos(tos);
        m_socket->Bind();
        m_socket->SetSendCallback(MakeCallback(&Sender::Fill, this));
        m_socket->Connect(to);
    }

    void Send(Number bytes, bool is_last = false)
    {
        m_left += bytes;
        m_is_last = is_last;
        Fill(m_socket, 0);
    }

    /// The connection's own port.
    uint16_t Port() const
    {
        Address address;
        m_socket->GetSockName(address);
        return InetSocketAddress::ConvertFrom(address).GetPort();
    }

  private:
    void Fill(Ptr<Socket>, uint32_t)
    {
        while (m_left > 0)
        {
            const uint32_t part = std::min<Number>(m_left, m_segment);
            if (m_socket->GetTxAvailable() < part || m_socket->Send(Create<Packet>(part)) < 0)
                return;
            m_left -= part;
        }
        if (m_is_last)
        {
            m_is_last = false;
            m_socket->Close();
        }
    }

    Ptr<Socket> m_socket;
    uint32_t m_segment;
    Number m_left = 0;
    bool m_is_last = false;
};

inline Number
ReadAll(Ptr<Socket> socket)
{
    Number bytes = 0;
    while (Ptr<Packet> packet = socket->Recv())
    {
        if (packet->GetSize() == 0)
            break;
        bytes += packet->GetSize();
    }
    return bytes;
}

// --- the background

/// Flows that begin at given times, each a connection of its own that its sender closes.
class Background
{
  public:
    Background(const Scenario& scenario, const Network& network)
        : m_scenario(scenario),
          m_network(network),
          m_tos(scenario.Value("background_tos")),
          m_segment(scenario.Value("segment_bytes")),
          m_received(scenario.flows.size()),
          m_end(scenario.flows.size(), -1),
          m_senders(scenario.flows.size())
    {
        if (scenario.flows.empty())
            return;
        for (size_t i = 0; i < scenario.addresses.size(); ++i)
        {
            Ptr<Socket> socket = Socket::CreateSocket(network.Host(i), TcpSocketFactory::GetTypeId());
            socket->SetIpTos(m_tos);
            socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), BACKGROUND_PORT));
            socket->Listen();
            socket->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(), MakeCallback(&Background::Accept, this));
            m_listening.push_back(socket);
        }
        for (size_t i = 0; i < scenario.flows.size(); ++i)
            Simulator::Schedule(NanoSeconds(scenario.flows[i].start), &Background::Begin, this, i);
    }

    void Finish(const std::string& out) const
    {
        Rows rows(out, "background.csv", "flow,src,dst,src_port,bytes,start_ns,end_ns");
        for (size_t i = 0; i < m_end.size(); ++i)
        {
            const auto& f = m_scenario.flows[i];
            if (m_senders[i])
                rows.Write(i, f.src, f.dst, m_senders[i]->Port(), f.bytes, f.start, m_end[i]);
        }
    }

  private:
    void Begin(size_t i)
    {
        const auto& f = m_scenario.flows[i];
        m_senders[i] = std::make_unique<Sender>(m_network.Host(f.src), m_network.Address(f.dst, BACKGROUND_PORT), m_tos, m_segment);
        m_numbers[{m_scenario.addresses[f.src], m_senders[i]->Port()}] = i;
        m_senders[i]->Send(f.bytes, true);
    }

    void Accept(Ptr<Socket> socket, const Address& from)
    {
        const auto address = InetSocketAddress::ConvertFrom(from);
        char text[16];
        const uint32_t a = address.GetIpv4().Get();
        std::snprintf(text, sizeof text, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
        m_flow_of[PeekPointer(socket)] = m_numbers.at({text, address.GetPort()});
        socket->SetIpTos(m_tos);
        socket->SetRecvCallback(MakeCallback(&Background::Receive, this));
        socket->SetCloseCallbacks(MakeCallback(&Background::Close, this), MakeCallback(&Background::Close, this));
    }

    void Receive(Ptr<Socket> socket)
    {
        const size_t i = m_flow_of.at(PeekPointer(socket));
        m_received[i] += ReadAll(socket);
        if (m_received[i] == m_scenario.flows[i].bytes && m_end[i] < 0)
            m_end[i] = NowNs();
    }

    void Close(Ptr<Socket> socket)
    {
        socket->Close();
    }

    const Scenario& m_scenario;
    const Network& m_network;
    uint8_t m_tos;
    uint32_t m_segment;
    std::vector<Number> m_received, m_end;
    std::vector<std::unique_ptr<Sender>> m_senders;
    std::vector<Ptr<Socket>> m_listening;
    std::map<std::pair<std::string, uint16_t>, size_t> m_numbers;
    std::unordered_map<Socket*, size_t> m_flow_of;
};

// --- the training

/// All workers and the global synchroniser: it begins an all-reduce when all workers have ended the one before.
class Training
{
  public:
    Training(const Scenario& scenario, const Network& network, std::vector<Number>& places, const std::string& out)
        : m_scenario(scenario),
          m_places(places),
          m_number(scenario.lists.at("order").size()),
          m_layers(scenario.lists.at("forward_ns").size()),
          m_has_barrier(scenario.Value("barrier")),
          m_has_priority(scenario.Value("priority")),
          m_steps(scenario.Value("steps")),
          m_workers(m_number),
          m_forward_ends(out, "forward_ends.csv", "worker,end_ns"),
          m_exchanges(out, "exchanges.csv", "step,buffer,start_ns,end_ns"),
          m_partitions(out, "partitions.csv", "step,buffer,interval,worker,partition,bytes,start_ns,end_ns")
    {
        for (Number layer = 0; layer < m_layers; ++layer)
        {
            Number number = 0;
            for (const auto& buffer : scenario.buffers)
                number += buffer.first <= layer && layer <= buffer.last;
            m_buffers_of.push_back(scenario.lists.at("has_gradient")[layer] ? number : 0);
        }
        for (size_t place = 0; place < m_number; ++place)
            Open(network, place);
        for (size_t i = 0; i < m_number; ++i)
        {
            double sum = 0;
            for (double length : scenario.lists.at("forward_ns"))
                sum += length;
            Simulator::Schedule(NanoSeconds(std::llround(sum * Factor(0, i))), &Training::EndForward, this, i);
        }
    }

    bool IsDone() const
    {
        return m_done == m_number;
    }

  private:
    /// A worker at a place in the ring; it sends to the next place.
    struct Worker
    {
        Number host = 0, step = -1, layer = 0;
        bool is_computing = false, has_gradients = false;
        std::unique_ptr<Sender> to_next;
        Ptr<Socket> listening, from_before;
        Number received = 0, expected = 0, interval = 0;
        std::vector<Number> progress, sent_at;
    };

    struct Exchange
    {
        Number step = 0, buffer = -1, start = 0, ended = 0;
        std::vector<Number> sizes{};
    };

    void Open(const Network& network, size_t place)
    {
        const auto& order = m_scenario.lists.at("order");
        Worker& worker = m_workers[place];
        worker.host = Number(order[place]);
        worker.listening = Socket::CreateSocket(network.Host(worker.host), TcpSocketFactory::GetTypeId());
        const uint8_t tos = m_scenario.Value("training_tos");
        worker.listening->SetIpTos(tos);
        worker.listening->Bind(InetSocketAddress(Ipv4Address::GetAny(), TRAINING_PORT));
        worker.listening->Listen();
        worker.listening->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                            MakeCallback(&Training::Accept, this));
        const InetSocketAddress next = network.Address(Number(order[(place + 1) % m_number]), TRAINING_PORT);
        Simulator::ScheduleNow(&Training::Connect, this, place, &network, next);
    }

    void Connect(size_t place, const Network* network, InetSocketAddress next)
    {
        Worker& worker = m_workers[place];
        worker.to_next = std::make_unique<Sender>(network->Host(worker.host), next, m_scenario.Value("training_tos"),
                                                  m_scenario.Value("segment_bytes"));
    }

    void Accept(Ptr<Socket> socket, const Address&)
    {
        const uint32_t node = socket->GetNode()->GetId();
        for (size_t place = 0; place < m_number; ++place)
        {
            if (Number(node) != m_workers[place].host)
                continue;
            m_workers[place].from_before = socket;
            m_place_of[PeekPointer(socket)] = place;
        }
        socket->SetIpTos(m_scenario.Value("training_tos"));
        socket->SetRecvCallback(MakeCallback(&Training::Receive, this));
    }

    // computation

    double Factor(Number step, size_t place) const
    {
        const auto& factors = m_scenario.lists.at("factors");
        const Number rows = factors.size() / m_number;
        return factors[std::min(step, rows - 1) * m_number + m_workers[place].host];
    }

    /// The end of a forward pass is that of a step; the backward pass of the next begins.
    void EndForward(size_t place)
    {
        Worker& worker = m_workers[place];
        m_forward_ends.Write(worker.host, NowNs());
        ++m_places[worker.host];
        if (++worker.step == m_steps)
        {
            if (++m_done == m_number)
                Simulator::Stop();
            return;
        }
        worker.layer = 0;
        worker.has_gradients = false;
        BeginStep(worker.step);
        double elapsed = 0;
        std::vector<Number> ends(m_layers);
        for (Number layer = m_layers - 1; layer >= 0; --layer)
        {
            elapsed += m_scenario.lists.at("backward_ns")[layer] * Factor(worker.step + 1, place);
            ends[layer] = std::llround(elapsed);
        }
        for (size_t k = 0; k < m_scenario.buffers.size(); ++k)
            Simulator::Schedule(NanoSeconds(ends[m_scenario.buffers[k].first]), &Training::Computed, this, k);
        Simulator::Schedule(NanoSeconds(ends[0]), &Training::EndBackward, this, place);
    }

    /// Buffers are missing again; nobody is behind the step before, whose counters the other half has.
    void BeginStep(Number step)
    {
        if (step <= m_step)
            return;
        m_step = step;
        m_missing[step % 2] = m_buffers_of;
        m_missing_in_all[step % 2] = m_scenario.buffers.size();
        m_computed.assign(m_scenario.buffers.size(), 0);
    }

    void EndBackward(size_t place)
    {
        m_workers[place].has_gradients = true;
        Advance(place);
    }

    void Advance(size_t place)
    {
        Worker& worker = m_workers[place];
        if (worker.is_computing || !worker.has_gradients)
            return;
        const auto half = worker.step % 2;
        if (m_has_barrier ? m_missing_in_all[half] > 0 : m_missing[half][worker.layer] > 0)
            return;
        worker.is_computing = true;
        const double length = m_scenario.lists.at("forward_ns")[worker.layer] * Factor(worker.step + 1, place);
        Simulator::Schedule(NanoSeconds(std::llround(length)), &Training::EndLayer, this, place);
    }

    void EndLayer(size_t place)
    {
        Worker& worker = m_workers[place];
        worker.is_computing = false;
        if (++worker.layer == m_layers)
            EndForward(place);
        else
            Advance(place);
    }

    // the global synchroniser

    void Computed(size_t buffer)
    {
        if (++m_computed[buffer] < Number(m_number))
            return;
        m_ready.push_back({NowNs(), Number(buffer)});
        Simulator::ScheduleNow(&Training::BeginNext, this); // after what else happens now
    }

    void BeginNext()
    {
        if (m_exchange.buffer >= 0 || m_ready.empty())
            return;
        const auto rank = [this](const std::pair<Number, Number>& one) {
            const Number first = m_scenario.buffers[one.second].first;
            return m_has_priority ? std::make_tuple(first, one.first, one.second)
                                  : std::make_tuple(one.first, -first, one.second);
        };
        const auto next = std::min_element(m_ready.begin(), m_ready.end(),
                                           [&rank](const auto& a, const auto& b) { return rank(a) < rank(b); });
        const Number buffer = next->second;
        m_ready.erase(next);
        BeginExchange(buffer);
    }

    void BeginExchange(Number buffer)
    {
        const Number bytes = m_scenario.buffers[buffer].bytes, n = m_number;
        m_exchange = Exchange{m_step, buffer, NowNs(), 0, {}};
        for (Number i = 0; i < n; ++i)
            m_exchange.sizes.push_back(bytes * (i + 1) / n - bytes * i / n);
        for (size_t place = 0; place < m_number; ++place)
        {
            Worker& worker = m_workers[place];
            worker.interval = 0;
            worker.progress.assign(n, 0);
            worker.sent_at.assign(2 * (n - 1), 0);
            worker.expected = worker.received + m_exchange.sizes[Partition(Before(place), 0)];
        }
        for (size_t place = 0; place < m_number; ++place)
            SendPartition(place, 0);
    }

    size_t Before(size_t place) const
    {
        return (place + m_number - 1) % m_number;
    }

    /// The partition that a place sends in an interval: the one that it received in the interval before.
    Number Partition(size_t place, Number interval) const
    {
        const Number n = m_number;
        return ((Number(place) - interval) % n + n) % n;
    }

    void SendPartition(size_t place, Number interval)
    {
        m_workers[place].sent_at[interval] = NowNs();
        m_workers[place].to_next->Send(m_exchange.sizes[Partition(place, interval)]);
    }

    void Receive(Ptr<Socket> socket)
    {
        const size_t place = m_place_of.at(PeekPointer(socket));
        m_workers[place].received += ReadAll(socket);
        CheckReceived(place);
    }

    void CheckReceived(size_t place)
    {
        Worker& worker = m_workers[place];
        const Number intervals = 2 * (Number(m_number) - 1);
        while (worker.interval < intervals && worker.received >= worker.expected)
        {
            const Worker& before = m_workers[Before(place)];
            const Number partition = Partition(Before(place), worker.interval);
            worker.progress[partition] = before.progress[partition] + 1;
            m_partitions.Write(m_exchange.step, m_exchange.buffer, worker.interval, worker.host, partition,
                               m_exchange.sizes[partition], before.sent_at[worker.interval], NowNs());
            if (++worker.interval == intervals)
            {
                EndExchange(worker, partition);
                return;
            }
            worker.expected += m_exchange.sizes[Partition(Before(place), worker.interval)];
            SendPartition(place, worker.interval);
        }
    }

    void EndExchange(const Worker& worker, Number last)
    {
        const Number n = m_number;
        for (Number k = 0; k < n; ++k) // the end state of figure 5.2
            if (worker.progress[(last + k) % n] != 2 * (n - 1) - k)
                throw std::runtime_error("an all-reduce ended before all partitions were complete");
        if (++m_exchange.ended < n)
            return;
        m_exchanges.Write(m_exchange.step, m_exchange.buffer, m_exchange.start, NowNs());
        Simulator::Schedule(NanoSeconds(m_scenario.Value("update_ns")), &Training::HaveGradients, this, m_exchange.step,
                            m_exchange.buffer);
        m_exchange.buffer = -1;
        Simulator::ScheduleNow(&Training::BeginNext, this);
    }

    void HaveGradients(Number step, Number buffer)
    {
        const auto& layers = m_scenario.buffers[buffer];
        auto& missing = m_missing[step % 2];
        for (Number layer = layers.first; layer <= layers.last; ++layer)
            missing[layer] -= m_buffers_of[layer] > 0;
        --m_missing_in_all[step % 2];
        for (size_t place = 0; place < m_number; ++place)
            Advance(place);
    }

    const Scenario& m_scenario;
    std::vector<Number>& m_places;
    size_t m_number;
    Number m_layers;
    bool m_has_barrier, m_has_priority;
    Number m_steps, m_step = -1, m_missing_in_all[2] = {};
    size_t m_done = 0;
    std::vector<Worker> m_workers;
    std::vector<Number> m_buffers_of, m_missing[2], m_computed;
    std::vector<std::pair<Number, Number>> m_ready; ///< time and buffer
    Exchange m_exchange;
    std::unordered_map<Socket*, size_t> m_place_of;
    Rows m_forward_ends, m_exchanges, m_partitions;
};

// --- a simulation

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
