// SPDX-License-Identifier: GPL-2.0-only
//
// Flows that begin at given times, beside the training.

#ifndef DDNN_TRACES_BACKGROUND
#define DDNN_TRACES_BACKGROUND

#include "connections.h"
#include "network.h"

#include <memory>

namespace ddnn
{

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

} // namespace ddnn

#endif
