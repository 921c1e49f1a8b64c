// SPDX-License-Identifier: GPL-2.0-only
//
// Senders of bytes over TCP.

#ifndef DDNN_TRACES_CONNECTIONS
#define DDNN_TRACES_CONNECTIONS

#include "scenario.h"

#include "ns3/inet-socket-address.h"
#include "ns3/socket.h"
#include "ns3/tcp-socket-factory.h"

namespace ddnn
{

/// What a connection gets: its type of service, and the shortest timeout after which it sends again.
struct Service
{
    uint8_t tos;
    Number min_rto_ns;
};

/// Give a connection this service from now on.
inline void
Serve(Ptr<Socket> socket, const Service& service)
{
    socket->SetAttribute("MinRto", TimeValue(NanoSeconds(service.min_rto_ns)));
    socket->SetIpTos(service.tos);
}

inline Ptr<Socket>
MakeSocket(Ptr<Node> host, const Service& service)
{
    Ptr<Socket> socket = Socket::CreateSocket(host, TcpSocketFactory::GetTypeId());
    Serve(socket, service);
    return socket;
}

/// The sending end of a TCP connection: keeps the socket's buffer full, in whole segments.
class Sender
{
  public:
    /// Of a new connection.
    Sender(Ptr<Node> node, const InetSocketAddress& to, const Service& service, uint32_t segment)
        : Sender(MakeSocket(node, service), service, segment)
    {
        if (m_socket->Bind() != 0)
            throw std::runtime_error("a host has no free port left for a connection");
        m_socket->Connect(to);
    }

    /// Of a connection that somebody else began.
    Sender(Ptr<Socket> socket, const Service& service, uint32_t segment)
        : m_socket(socket),
          m_segment(segment)
    {
        Serve(m_socket, service);
        m_socket->SetSendCallback(MakeCallback(&Sender::Fill, this));
    }

    void Send(Number bytes, bool is_last = false)
    {
        m_left += bytes;
        m_is_last = is_last;
        Fill(m_socket, 0);
    }

    Ptr<Socket> GetSocket() const
    {
        return m_socket;
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

/// A socket that listens at a host's port; `accept` is called with each connection.
template <typename Owner>
Ptr<Socket>
Listen(Ptr<Node> host, uint16_t port, const Service& service, void (Owner::*accept)(Ptr<Socket>, const Address&), Owner* owner)
{
    Ptr<Socket> socket = MakeSocket(host, service);
    socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    socket->Listen();
    socket->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(), MakeCallback(accept, owner));
    return socket;
}

} // namespace ddnn

#endif
