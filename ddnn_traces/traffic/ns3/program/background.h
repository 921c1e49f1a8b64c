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
          m_service{uint8_t(scenario.Value("background_tos")), scenario.Value("background_min_rto_ns")},
          m_segment(scenario.Value("segment_bytes")),
          m_received(scenario.flows.size()),
          m_end(scenario.flows.size(), -1),
          m_ports(scenario.flows.size()),
          m_senders(scenario.flows.size())
    {
        if (scenario.flows.empty())
            return;
        for (size_t i = 0; i < scenario.addresses.size(); ++i)
            m_listening.push_back(Listen(network.Host(i), BACKGROUND_PORT, m_service, &Background::Accept, this));
        Await();
    }

    /// Whether no flow is under way.
    bool IsQuiet() const
    {
        return m_ended == m_begun;
    }

    /// Time of the next arrival; -1: there is none.
    Number NextNs() const
    {
        return m_begun < m_scenario.flows.size() ? m_scenario.flows[m_begun].start : -1;
    }

    /// Await the next arrival, after time was skipped, too.
    void Await()
    {
        m_next.Cancel();
        if (m_begun < m_scenario.flows.size())
            m_next = ScheduleAt(NextNs(), &Background::Begin, this);
    }

    void Finish(const std::string& out) const
    {
        Rows rows(out, "background.csv", "flow,src,dst,src_port,bytes,start_ns,end_ns");
        for (size_t i = 0; i < m_end.size(); ++i)
        {
            const auto& f = m_scenario.flows[i];
            if (m_senders[i])
                rows.Write(i, f.src, f.dst, m_ports[i], f.bytes, f.start, m_end[i]);
        }
    }

  private:
    void Begin()
    {
        const size_t i = m_begun++;
        const auto& f = m_scenario.flows[i];
        m_senders[i] = std::make_unique<Sender>(m_network.Host(f.src), m_network.Address(f.dst, BACKGROUND_PORT), m_service, m_segment);
        m_ports[i] = m_senders[i]->Port(); // a closed socket has none
        m_numbers[{m_network.Address(f.src, 0).GetIpv4().Get(), m_ports[i]}] = i;
        m_senders[i]->Send(f.bytes, true);
        Await();
    }

    void Accept(Ptr<Socket> socket, const Address& from)
    {
        const auto address = InetSocketAddress::ConvertFrom(from);
        m_flow_of[PeekPointer(socket)] = m_numbers.at({address.GetIpv4().Get(), address.GetPort()});
        socket->SetIpTos(m_service.tos);
        socket->SetRecvCallback(MakeCallback(&Background::Receive, this));
        socket->SetCloseCallbacks(MakeCallback(&Background::Close, this), MakeCallback(&Background::Close, this));
    }

    void Receive(Ptr<Socket> socket)
    {
        const size_t i = m_flow_of.at(PeekPointer(socket));
        m_received[i] += ReadAll(socket);
        if (m_received[i] < m_scenario.flows[i].bytes || m_end[i] >= 0)
            return;
        m_end[i] = NowNs();
        ++m_ended;
    }

    void Close(Ptr<Socket> socket)
    {
        socket->Close();
    }

    const Scenario& m_scenario;
    const Network& m_network;
    Service m_service;
    uint32_t m_segment;
    std::vector<Number> m_received, m_end;
    std::vector<uint16_t> m_ports;
    std::vector<std::unique_ptr<Sender>> m_senders;
    std::vector<Ptr<Socket>> m_listening;
    size_t m_begun = 0, m_ended = 0;
    EventId m_next;
    std::map<std::pair<uint32_t, uint16_t>, size_t> m_numbers; ///< by the sender's address and port
    std::unordered_map<Socket*, size_t> m_flow_of;
};

} // namespace ddnn

#endif
