// SPDX-License-Identifier: GPL-2.0-only
//
// Collectives: how a buffer is exchanged between the workers.

#ifndef DDNN_TRACES_COLLECTIVES
#define DDNN_TRACES_COLLECTIVES

#include "connections.h"
#include "network.h"

#include <functional>
#include <memory>
#include <unordered_map>

namespace ddnn
{

/// A buffer that is exchanged in a step.
struct Piece
{
    Number step = 0, buffer = -1, bytes = 0;
};

/// Rows of transfers: step, buffer, interval, worker that receives, partition, bytes, start, end.
using Transfers = StepRows<8, 2>;

/// Exchanges one buffer at a time in each of its phases, and calls `ended` with the phase.
class Collective
{
  public:
    using Ended = std::function<void(int phase)>;

    Collective(const Scenario& scenario, uint16_t port, Transfers& transfers, Ended ended)
        : m_segment(scenario.Value("segment_bytes")),
          m_service{uint8_t(scenario.Value("training_tos")), scenario.Value("training_min_rto_ns")},
          m_port(port),
          m_transfers(transfers),
          m_ended(std::move(ended))
    {
        for (double host : scenario.lists.at("order"))
            m_order.push_back(Number(host));
    }

    virtual ~Collective() = default;
    virtual int Phases() const = 0;
    virtual void Begin(int phase, const Piece& piece, const Service& service) = 0;

  protected:
    uint32_t m_segment;
    Service m_service;
    uint16_t m_port;
    std::vector<Number> m_order;
    Transfers& m_transfers;
    Ended m_ended;
};

/// Ring all-reduce: 2(N-1) intervals, in each of which a worker sends a partition of 1/N to the next (Gao 2020, 5.2).
class Ring : public Collective
{
  public:
    Ring(const Scenario& scenario, const Network& network, uint16_t port, Transfers& transfers, Ended ended)
        : Collective(scenario, port, transfers, std::move(ended)),
          m_number(m_order.size()),
          m_workers(m_number)
    {
        for (size_t place = 0; place < m_number; ++place)
            m_workers[place].listening = Listen(network.Host(m_order[place]), m_port, m_service, &Ring::Accept, this);
        for (size_t place = 0; place < m_number; ++place)
            Simulator::ScheduleNow(&Ring::Connect, this, place, &network);
    }

    int Phases() const override
    {
        return 1;
    }

    void Begin(int, const Piece& piece, const Service& service) override
    {
        const Number n = m_number;
        m_piece = piece;
        m_sizes.clear();
        m_complete = 0;
        for (Number i = 0; i < n; ++i)
            m_sizes.push_back(piece.bytes * (i + 1) / n - piece.bytes * i / n);
        for (size_t place = 0; place < m_number; ++place)
        {
            Worker& worker = m_workers[place];
            Serve(worker.to_next->GetSocket(), service);
            if (worker.from_before)
                Serve(worker.from_before, service); // acknowledgements go with the data
            worker.interval = 0;
            worker.progress.assign(n, 0);
            worker.sent_at.assign(2 * (n - 1), 0);
            worker.expected = worker.received + m_sizes[Partition(Before(place), 0)];
        }
        for (size_t place = 0; place < m_number; ++place)
            SendPartition(place, 0);
    }

  private:
    /// A worker at a place in the ring; it sends to the next place.
    struct Worker
    {
        std::unique_ptr<Sender> to_next;
        Ptr<Socket> listening, from_before;
        Number received = 0, expected = 0, interval = 0;
        std::vector<Number> progress, sent_at;
    };

    void Connect(size_t place, const Network* network)
    {
        const InetSocketAddress next = network->Address(m_order[(place + 1) % m_number], m_port);
        m_workers[place].to_next = std::make_unique<Sender>(network->Host(m_order[place]), next, m_service, m_segment);
    }

    void Accept(Ptr<Socket> socket, const Address&)
    {
        const Number host = socket->GetNode()->GetId();
        const size_t place = std::find(m_order.begin(), m_order.end(), host) - m_order.begin();
        m_workers[place].from_before = socket;
        m_place_of[PeekPointer(socket)] = place;
        socket->SetIpTos(m_service.tos);
        socket->SetRecvCallback(MakeCallback(&Ring::Receive, this));
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
        m_workers[place].to_next->Send(m_sizes[Partition(place, interval)]);
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
            m_transfers.Write({m_piece.step, m_piece.buffer, worker.interval, m_order[place], partition, m_sizes[partition],
                               before.sent_at[worker.interval], NowNs()});
            if (++worker.interval == intervals)
            {
                Complete(worker, partition);
                return;
            }
            worker.expected += m_sizes[Partition(Before(place), worker.interval)];
            SendPartition(place, worker.interval);
        }
    }

    void Complete(const Worker& worker, Number last)
    {
        const Number n = m_number;
        for (Number k = 0; k < n; ++k) // the end state of figure 5.2
            if (worker.progress[(last + k) % n] != 2 * (n - 1) - k)
                throw std::runtime_error("an all-reduce ended before all partitions were complete");
        if (++m_complete == m_number)
            m_ended(0);
    }

    size_t m_number, m_complete = 0;
    std::vector<Worker> m_workers;
    std::unordered_map<Socket*, size_t> m_place_of;
    Piece m_piece;
    std::vector<Number> m_sizes;
};

/// Parameter server: each worker sends it a buffer (phase 0), then it sends each the sum (phase 1).
class ParameterServer : public Collective
{
  public:
    ParameterServer(const Scenario& scenario, const Network& network, uint16_t port, Transfers& transfers, Ended ended)
        : Collective(scenario, port, transfers, std::move(ended)),
          m_server(scenario.Value("server"))
    {
        for (Number host : m_order)
            if (host != m_server)
                m_workers.push_back(Worker{host});
        m_listening = Listen(network.Host(m_server), m_port, m_service, &ParameterServer::Accept, this);
        for (size_t i = 0; i < m_workers.size(); ++i)
            Simulator::ScheduleNow(&ParameterServer::Connect, this, i, &network);
    }

    int Phases() const override
    {
        return 2;
    }

    void Begin(int phase, const Piece& piece, const Service& service) override
    {
        m_pieces[phase] = piece;
        m_begun[phase] = NowNs();
        m_complete[phase] = 0;
        for (auto& worker : m_workers)
        {
            worker.expected[phase] += piece.bytes;
            Sender& sender = phase == 0 ? *worker.to_server : *worker.from_server;
            Serve(sender.GetSocket(), service);
            sender.Send(piece.bytes);
        }
    }

  private:
    struct Worker
    {
        Number host = 0;
        std::unique_ptr<Sender> to_server{}, from_server{};
        Number received[2] = {}, expected[2] = {}; ///< in each phase, since the connection began
    };

    void Connect(size_t i, const Network* network)
    {
        Worker& worker = m_workers[i];
        worker.to_server = std::make_unique<Sender>(network->Host(worker.host), network->Address(m_server, m_port), m_service, m_segment);
        Ptr<Socket> socket = worker.to_server->GetSocket();
        socket->SetRecvCallback(MakeCallback(&ParameterServer::Receive, this));
        m_end_of[PeekPointer(socket)] = {i, 1};
        m_number_of[network->Address(worker.host, 0).GetIpv4().Get()] = i;
    }

    void Accept(Ptr<Socket> socket, const Address& from)
    {
        const size_t i = m_number_of.at(InetSocketAddress::ConvertFrom(from).GetIpv4().Get());
        m_workers[i].from_server = std::make_unique<Sender>(socket, m_service, m_segment);
        m_end_of[PeekPointer(socket)] = {i, 0};
        socket->SetRecvCallback(MakeCallback(&ParameterServer::Receive, this));
    }

    void Receive(Ptr<Socket> socket)
    {
        const auto [i, phase] = m_end_of.at(PeekPointer(socket));
        Worker& worker = m_workers[i];
        const Number bytes = ReadAll(socket);
        worker.received[phase] += bytes;
        if (bytes == 0 || worker.received[phase] < worker.expected[phase])
            return;
        const Piece& piece = m_pieces[phase];
        m_transfers.Write({piece.step, piece.buffer, phase, phase == 0 ? m_server : worker.host, Number(i), piece.bytes, m_begun[phase],
                           NowNs()});
        if (++m_complete[phase] == m_workers.size())
            m_ended(phase);
    }

    Number m_server;
    std::vector<Worker> m_workers;
    Ptr<Socket> m_listening;
    std::unordered_map<Socket*, std::pair<size_t, int>> m_end_of; ///< worker, and phase that the socket receives in
    std::unordered_map<uint32_t, size_t> m_number_of;
    Piece m_pieces[2];
    Number m_begun[2] = {};
    size_t m_complete[2] = {};
};

} // namespace ddnn

#endif
