// SPDX-License-Identifier: GPL-2.0-only
//
// Hosts, switches and their queues.

#ifndef DDNN_TRACES_NETWORK
#define DDNN_TRACES_NETWORK

#include "counters.h"

#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-l3-protocol.h"
#include "ns3/ipv4-static-routing-helper.h"
#include "ns3/node-container.h"
#include "ns3/point-to-point-helper.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/queue-disc.h"
#include "ns3/socket.h"
#include "ns3/string.h"
#include "ns3/trace-helper.h"
#include "ns3/traffic-control-helper.h"
#include "ns3/uinteger.h"

namespace ddnn
{

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

} // namespace ddnn

#endif
