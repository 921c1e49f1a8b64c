// SPDX-License-Identifier: GPL-2.0-only
//
// Hosts, switches and their queues.

#ifndef DDNN_TRACES_NETWORK
#define DDNN_TRACES_NETWORK

#include "counters.h"

#include "ns3/boolean.h"
#include "ns3/double.h"
#include "ns3/fq-codel-queue-disc.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-l3-protocol.h"
#include "ns3/ipv4-static-routing-helper.h"
#include "ns3/node-container.h"
#include "ns3/point-to-point-helper.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/queue-disc.h"
#include "ns3/socket.h"
#include "ns3/string.h"
#include "ns3/tcp-l4-protocol.h"
#include "ns3/trace-helper.h"
#include "ns3/traffic-control-helper.h"
#include "ns3/uinteger.h"

#include <memory>
#include <tuple>
#include <unordered_map>

namespace ddnn
{

template <typename Method>
struct ArgumentsOf;

template <typename Result, typename Class, typename... Types>
struct ArgumentsOf<Result (Class::*)(Types...)>
{
    template <size_t i>
    using At = std::tuple_element_t<i, std::tuple<Types...>>;
};

/// Routes of a switch: the ports to each host. Of several a flow takes one, by a hash of its addresses and ports, as
/// equal-cost multipath does (RFC 2992).
class HashedRouting : public Ipv4RoutingProtocol
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId type = TypeId("ddnn::HashedRouting").SetParent<Ipv4RoutingProtocol>();
        return type;
    }

    void Add(Ipv4Address host, uint32_t port)
    {
        m_ports[host.Get()].push_back(port);
    }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header&, Ptr<NetDevice>, Socket::SocketErrno&) override
    {
        throw std::runtime_error("a switch has nothing to send");
    }

    using Input = ArgumentsOf<decltype(&Ipv4RoutingProtocol::RouteInput)>; // by value in ns-3.37, later by reference

    bool RouteInput(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice>, Input::At<3> forward, Input::At<4>,
                    Input::At<5>, Input::At<6>) override
    {
        auto found = m_ports.find(header.GetDestination().Get());
        if (found == m_ports.end())
            return false;
        const auto& ports = found->second;
        const uint32_t port = ports.size() == 1 ? ports[0] : ports[Hash(*packet, header) % ports.size()];
        auto& route = m_routes[port];
        if (!route)
        {
            route = Create<Ipv4Route>();
            route->SetOutputDevice(m_ip->GetNetDevice(port));
        }
        forward(route, packet, header);
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

    void SetIpv4(Ptr<Ipv4> ip) override
    {
        m_ip = ip;
    }

  private:
    /// FNV-1a of the addresses and of the first four bytes, TCP's ports, whitened by a multiplication.
    static uint32_t Hash(const Packet& packet, const Ipv4Header& header)
    {
        uint8_t bytes[12];
        header.GetSource().Serialize(bytes);
        header.GetDestination().Serialize(bytes + 4);
        packet.CopyData(bytes + 8, 4);
        uint64_t hash = 14695981039346656037ULL;
        for (uint8_t byte : bytes)
            hash = (hash ^ byte) * 1099511628211ULL;
        return uint32_t((hash * 0x9E3779B97F4A7C15ULL) >> 32);
    }

    std::unordered_map<uint32_t, std::vector<uint32_t>> m_ports; ///< by a host's address
    std::unordered_map<uint32_t, Ptr<Ipv4Route>> m_routes;       ///< by port
    Ptr<Ipv4> m_ip;
};

/// Hosts on one top-of-rack switch, or on several (leaves) that spines connect, each leaf with each spine. Switches are
/// routers with a queue of three bands at each port, as at each host.
class Network
{
  public:
    Network(const Scenario& scenario, Counters& counters, const std::string& out)
        : m_scenario(scenario),
          m_counters(counters)
    {
        const size_t hosts = scenario.addresses.size(), leaves = scenario.Value("leaves"), spines = scenario.Value("spines");
        m_hosts.Create(hosts);
        m_leaves.Create(leaves);
        m_spines.Create(leaves > 1 ? spines : 0);
        InternetStackHelper internet;
        internet.SetIpv6StackInstall(false);
        internet.Install(m_hosts);
        if (scenario.Word("ecn_threshold") != "none")
            for (size_t i = 0; i < hosts; ++i)
                MakeCapableOfEcn(m_hosts.Get(i));
        internet.SetRoutingHelper(SwitchRouting());
        internet.Install(m_leaves);
        internet.Install(m_spines);
        for (size_t i = 0; i < hosts; ++i)
            ConnectHost(i, LeafOf(i));
        for (size_t spine = 0; spine < m_spines.GetN(); ++spine)
            for (size_t leaf = 0; leaf < leaves; ++leaf)
                ConnectSpine(leaf, spine);
        for (double host : scenario.lists.at("captured"))
            Capture(size_t(host), out);
    }

    Ptr<Node> Host(size_t i) const
    {
        return m_hosts.Get(i);
    }

    InetSocketAddress Address(size_t i, uint16_t port) const
    {
        return {Ipv4Address(m_scenario.addresses[i].c_str()), port};
    }

    /// Packets dropped in each band of the hosts' queues and of the switches'; bytes on each link of leaves and spines.
    void Finish(const std::string& out) const
    {
        Rows links(out, "uplinks.csv", "leaf,spine,up_bytes,down_bytes");
        for (const auto& link : m_uplinks)
            links.Write(link->leaf, link->spine, link->bytes[0], link->bytes[1]);
        Rows rows(out, "drops.csv", "at_switch,band,packets");
        for (int at_switch = 0; at_switch < 2; ++at_switch)
            for (int band = 0; band < BANDS; ++band)
                rows.Write(at_switch, band, m_drops[at_switch][band]);
    }

    /// A step ended.
    void EndStep()
    {
        for (auto& link : m_uplinks)
        {
            for (int way = 0; way < 2; ++way)
            {
                link->of_step[way] = link->bytes[way] - link->before[way];
                link->before[way] = link->bytes[way];
            }
        }
    }

    /// Count the last step again, so many times.
    void Repeat(Number times)
    {
        for (auto& link : m_uplinks)
            for (int way = 0; way < 2; ++way)
                link->before[way] = link->bytes[way] += times * link->of_step[way];
    }

  private:
    /// Gives switches a HashedRouting.
    class SwitchRouting : public Ipv4RoutingHelper
    {
      public:
        Ipv4RoutingHelper* Copy() const override
        {
            return new SwitchRouting(*this);
        }

        Ptr<Ipv4RoutingProtocol> Create(Ptr<Node>) const override
        {
            return CreateObject<HashedRouting>();
        }
    };

    static Ptr<HashedRouting> RoutingOf(Ptr<Node> node)
    {
        return DynamicCast<HashedRouting>(node->GetObject<Ipv4>()->GetRoutingProtocol());
    }

    NetDeviceContainer Link(Ptr<Node> from, Ptr<Node> to, double bit_per_s)
    {
        PointToPointHelper link;
        link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(bit_per_s))));
        link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(m_scenario.Value("link_delay_ns"))));
        link.SetDeviceAttribute("Mtu", UintegerValue(m_scenario.Value("segment_bytes") + MOST_HEADERS));
        link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1p"));
        return link.Install(from, to);
    }

    size_t LeafOf(size_t host) const
    {
        return host * m_leaves.GetN() / m_hosts.GetN();
    }

    void ConnectHost(size_t i, size_t leaf)
    {
        const NetDeviceContainer ends = Link(m_hosts.Get(i), m_leaves.Get(leaf), m_scenario.lists.at("bit_per_s")[i]);
        m_devices.Add(ends.Get(0));
        AddQueue(ends.Get(0), 0);
        AddQueue(ends.Get(1), 1);
        const Ipv4Address host(m_scenario.addresses[i].c_str());
        const uint32_t of_host = AddAddress(ends.Get(0), host);
        const Ipv4Address port = NextAddress();
        Ipv4StaticRoutingHelper routing;
        routing.GetStaticRouting(m_hosts.Get(i)->GetObject<Ipv4>())->SetDefaultRoute(port, of_host);
        RoutingOf(m_leaves.Get(leaf))->Add(host, AddAddress(ends.Get(1), port));
        ends.Get(0)->TraceConnectWithoutContext("PhyTxBegin", MakeBoundCallback(&Network::Sent, &m_counters, Number(i)));
    }

    void ConnectSpine(size_t leaf, size_t spine)
    {
        const NetDeviceContainer ends = Link(m_leaves.Get(leaf), m_spines.Get(spine), m_scenario.Value("uplink_bit_per_s"));
        m_uplinks.push_back(std::make_unique<Uplink>(Uplink{Number(leaf), Number(spine)}));
        for (int end = 0; end < 2; ++end)
        {
            AddQueue(ends.Get(end), 1);
            Number* bytes = &m_uplinks.back()->bytes[end];
            ends.Get(end)->TraceConnectWithoutContext("PhyTxBegin", MakeBoundCallback(&Network::Carried, bytes));
        }
        const uint32_t up = AddAddress(ends.Get(0), NextAddress()), down = AddAddress(ends.Get(1), NextAddress());
        for (size_t i = 0; i < m_hosts.GetN(); ++i)
        {
            const Ipv4Address host(m_scenario.addresses[i].c_str());
            if (LeafOf(i) == leaf)
                RoutingOf(m_spines.Get(spine))->Add(host, down);
            else
                RoutingOf(m_leaves.Get(leaf))->Add(host, up);
        }
    }

    /// Gives all packets of TCP the codepoint ECT(0), as Linux does for DCTCP; ns-3 leaves it out of packets with a type
    /// of service.
    static void MakeCapableOfEcn(Ptr<Node> host)
    {
        const auto tcp = host->GetObject<TcpL4Protocol>();
        const IpL4Protocol::DownTargetCallback down = tcp->GetDownTarget();
        tcp->SetDownTarget(IpL4Protocol::DownTargetCallback(
            [down](Ptr<Packet> packet, Ipv4Address from, Ipv4Address to, uint8_t protocol, Ptr<Ipv4Route> route) {
                SocketIpTosTag tag;
                packet->RemovePacketTag(tag);
                tag.SetTos((tag.GetTos() & 0xFC) | 2);
                packet->AddPacketTag(tag);
                down(packet, from, to, protocol, route);
            }));
    }

    /// Addresses of the switches' ports, which nobody sends to.
    Ipv4Address NextAddress()
    {
        return Ipv4Address(m_next_address++);
    }

    static uint32_t AddAddress(Ptr<NetDevice> device, Ipv4Address address)
    {
        Ptr<Ipv4> ip = device->GetNode()->GetObject<Ipv4>();
        const uint32_t number = ip->AddInterface(device);
        ip->AddAddress(number, Ipv4InterfaceAddress(address, Ipv4Mask("255.255.255.255")));
        ip->SetUp(number);
        return number;
    }

    /// pfifo_fast has one limit for all bands; prio and fq_codel have three queues, each with its own. Marks: RED in the
    /// switches that marks all packets above one length of the queue (Alizadeh 2010, section 3.1).
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
            const auto& mark = m_scenario.Word("ecn_threshold");
            if (m_scenario.Word("queue_disc") == "fq_codel")
                control.AddChildQueueDiscs(root, classes, "ns3::FqCoDelQueueDisc", "MaxSize", limit);
            else if (mark == "none" || !at_switch)
                control.AddChildQueueDiscs(root, classes, "ns3::FifoQueueDisc", "MaxSize", limit);
            else
                control.AddChildQueueDiscs(root, classes, "ns3::RedQueueDisc", "MaxSize", limit, "MinTh", DoubleValue(std::stod(mark)),
                                           "MaxTh", DoubleValue(std::stod(mark)), "QW", DoubleValue(1), "UseEcn", BooleanValue(true),
                                           "UseHardDrop", BooleanValue(false), "Gentle", BooleanValue(false), "MeanPktSize",
                                           UintegerValue(m_scenario.Value("segment_bytes")));
        }
        Ptr<QueueDisc> queue = control.Install(device).Get(0);
        Number* drops = m_drops[at_switch]; // an array would be copied
        for (const char* when : {"DropBeforeEnqueue", "DropAfterDequeue"}) // fq_codel drops what waits
            queue->TraceConnectWithoutContext(when, MakeBoundCallback(&Network::Dropped, drops));
        for (size_t i = 0; i < queue->GetNQueueDiscClasses(); ++i)
            if (auto fair = DynamicCast<FqCoDelQueueDisc>(queue->GetQueueDiscClass(i)->GetQueueDisc()))
                fair->SetQuantum(device->GetMtu()); // a root queue takes it from its device, a child has none
    }

    static void Sent(Counters* counters, Number host, Ptr<const Packet> packet)
    {
        counters->Sent(host, packet);
    }

    static void Carried(Number* bytes, Ptr<const Packet> packet)
    {
        *bytes += packet->GetSize();
    }

    static void Dropped(Number* drops, Ptr<const QueueDiscItem> item, const char*)
    {
        SocketPriorityTag tag;
        item->GetPacket()->PeekPacketTag(tag);
        ++drops[BAND_OF_PRIORITY[tag.GetPriority() & 15]];
    }

    void Capture(size_t host, const std::string& out)
    {
        PcapHelper helper;
        const Time begin = NanoSeconds(m_scenario.Value("begin_ns"));
        const std::string name = out + "/" + m_scenario.labels[host] + "-tcpdump.pcap";
        auto file = helper.CreateFile(name, std::ios::out | std::ios::binary, PcapHelper::DLT_PPP, m_scenario.Value("snaplen"));
        m_devices.Get(host)->TraceConnectWithoutContext("PromiscSniffer", MakeBoundCallback(&Network::Write, file, begin));
    }

    static void Write(Ptr<PcapFileWrapper> file, Time begin, Ptr<const Packet> packet)
    {
        file->Write(begin + NanoSeconds(NowNs()), packet);
    }

    /// A link between a leaf and a spine; bytes up and down, until the last step, and of that step.
    struct Uplink
    {
        Number leaf, spine;
        Number bytes[2] = {}, before[2] = {}, of_step[2] = {};
    };

    const Scenario& m_scenario;
    Counters& m_counters;
    NodeContainer m_hosts, m_leaves, m_spines;
    uint32_t m_next_address = Ipv4Address("172.16.0.1").Get();
    NetDeviceContainer m_devices;
    std::vector<std::unique_ptr<Uplink>> m_uplinks;
    Number m_drops[2][BANDS] = {};
};

} // namespace ddnn

#endif
