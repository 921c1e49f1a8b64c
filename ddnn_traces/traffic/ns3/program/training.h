// SPDX-License-Identifier: GPL-2.0-only
//
// Workers, and the global synchroniser of their all-reduces.

#ifndef DDNN_TRACES_TRAINING
#define DDNN_TRACES_TRAINING

#include "connections.h"
#include "network.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace ddnn
{

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

} // namespace ddnn

#endif
