// SPDX-License-Identifier: GPL-2.0-only
//
// A stream of packets at a constant rate, beside the training.

#ifndef DDNN_TRACES_STREAM
#define DDNN_TRACES_STREAM

#include "network.h"

#include "ns3/inet-socket-address.h"
#include "ns3/udp-socket-factory.h"

#include <cmath>
#include <cstring>

namespace ddnn
{

/// UDP from the first worker to the last, from the start of the run to its end; each packet has its number.
class Stream
{
  public:
    Stream(const Scenario& scenario, const Network& network)
        : m_gap_ns(std::stod(scenario.Word("stream_gap_ns"))),
          m_content(scenario.Value("stream_packet_bytes"))
    {
        if (m_gap_ns == 0)
            return;
        const size_t to = scenario.Value("workers") - 1;
        m_receiver = Socket::CreateSocket(network.Host(to), UdpSocketFactory::GetTypeId());
        m_receiver->Bind(InetSocketAddress(Ipv4Address::GetAny(), STREAM_PORT));
        m_receiver->SetRecvCallback(MakeCallback(&Stream::Receive, this));
        m_sender = Socket::CreateSocket(network.Host(0), UdpSocketFactory::GetTypeId());
        m_sender->Connect(network.Address(to, STREAM_PORT)); // ns-3.37 takes the type of service from the address here
        m_sender->SetIpTos(uint8_t(scenario.Value("background_tos")));
        ScheduleAt(0, &Stream::Send, this);
    }

    void Finish(const std::string& out) const
    {
        Rows rows(out, "stream.csv", "packet,start_ns,end_ns");
        for (size_t i = 0; i < m_end.size(); ++i)
            rows.Write(i, Start(i), m_end[i]);
    }

  private:
    Number Start(uint64_t packet) const
    {
        return std::llround(packet * m_gap_ns);
    }

    void Send()
    {
        const uint64_t number = m_end.size();
        m_end.push_back(-1);
        std::memcpy(m_content.data(), &number, sizeof number);
        m_sender->Send(Create<Packet>(m_content.data(), m_content.size()));
        ScheduleAt(Start(number + 1), &Stream::Send, this);
    }

    void Receive(Ptr<Socket> socket)
    {
        while (Ptr<Packet> packet = socket->Recv())
        {
            uint64_t number = 0;
            packet->CopyData(reinterpret_cast<uint8_t*>(&number), sizeof number);
            m_end.at(number) = NowNs();
        }
    }

    double m_gap_ns;
    std::vector<uint8_t> m_content;
    std::vector<Number> m_end; ///< of each packet that was sent, -1 without arrival
    Ptr<Socket> m_sender, m_receiver;
};

} // namespace ddnn

#endif
