// SPDX-License-Identifier: GPL-2.0-only
//
// Workers that compute, and the global synchroniser of their exchanges.

#ifndef DDNN_TRACES_TRAINING
#define DDNN_TRACES_TRAINING

#include "collectives.h"

#include <algorithm>
#include <cmath>

namespace ddnn
{

/// A job: all its workers and the global synchroniser. That begins an exchange when all workers have ended the one
/// before; a parameter server aggregates one buffer while it distributes another.
class Training
{
  public:
    /// number: of the job, from 0. places: of each host, how many forward passes its worker has ended; of job 0.
    Training(const Scenario& scenario, const Network& network, Number number, std::vector<Number>& places, const std::string& out)
        : m_scenario(scenario),
          m_places(places),
          m_job(number),
          m_number(scenario.Value("workers")),
          m_layers(scenario.lists.at("forward_ns").size()),
          m_has_barrier(scenario.Value("barrier")),
          m_has_priority(scenario.Value("priority")),
          m_steps(scenario.Value("steps")),
          m_workers(m_number),
          m_forward_ends(out, "forward_ends" + Suffix() + ".csv", "step,worker,end_ns"),
          m_exchanges(out, "exchanges" + Suffix() + ".csv", "step,buffer,phase,is_high,start_ns,end_ns"),
          m_transfers(out, "partitions" + Suffix() + ".csv", "step,buffer,interval,worker,partition,bytes,start_ns,end_ns")
    {
        for (Number layer = 0; layer < m_layers; ++layer)
        {
            Number of_layer = 0;
            for (const auto& buffer : scenario.buffers)
                of_layer += buffer.first <= layer && layer <= buffer.last;
            m_buffers_of.push_back(scenario.lists.at("has_gradient")[layer] ? of_layer : 0);
        }
        const auto ended = [this](int phase) { EndExchange(phase); };
        const uint16_t port = TRAINING_PORT + m_job;
        if (scenario.Word("collective") == "parameter_server")
            m_collective = std::make_unique<ParameterServer>(scenario, network, port, m_transfers, ended);
        else
            m_collective = std::make_unique<Ring>(scenario, network, port, m_transfers, ended);
        m_phases.resize(m_collective->Phases());
        const Number begin = m_job * scenario.Value("job_offset_ns");
        for (size_t i = 0; i < m_number; ++i)
            ScheduleAt(begin + std::llround(Sum("forward_ns") * Factor(0, i)), &Training::EndForward, this, i);
    }

    bool IsDone() const
    {
        return m_done == m_number;
    }

    /// Called when all workers have ended a forward pass.
    void OnStep(std::function<void()> call)
    {
        m_on_step = std::move(call);
    }

    /// Times of the last step: that of each transfer, summed by receiver.
    std::map<Number, Number> TransferTimes() const
    {
        std::map<Number, Number> found;
        for (const auto& row : m_transfers.OfStep(m_step - 1))
            found[row[3]] += row[7] - row[6];
        return found;
    }

    double ShareDone() const
    {
        return double(std::max<Number>(m_step, 0)) / std::max<Number>(m_steps, 1);
    }

    Number StepsLeft() const
    {
        return m_steps - m_step;
    }

    /// Repeat the last step so many times, each `period` later than the one before.
    void Repeat(Number times, Number period)
    {
        m_forward_ends.Repeat(m_step, times, period);
        m_exchanges.Repeat(m_step - 1, times, period);
        m_transfers.Repeat(m_step - 1, times, period);
        m_step += times;
        m_step_begin += times * period;
        for (auto& worker : m_workers)
            worker.step += times;
        for (size_t i = 0; i < m_number; ++i)
            CountPlaces(i, times);
        if (times % 2)
        {
            std::swap(m_missing[0], m_missing[1]);
            std::swap(m_missing_in_all[0], m_missing_in_all[1]);
        }
    }

  private:
    struct Worker
    {
        Number step = -1, layer = 0;
        bool is_computing = false, has_gradients = false;
    };

    /// A phase of the exchange: what waits for it, by the time since when, and what is under way.
    struct Phase
    {
        std::vector<std::pair<Number, Number>> waiting{}; ///< time and buffer
        Number buffer = -1, start = 0, is_high = 0;
    };

    std::string Suffix() const
    {
        return m_job ? "-" + std::to_string(m_job) : "";
    }

    double Sum(const char* name) const
    {
        double sum = 0;
        for (double length : m_scenario.lists.at(name))
            sum += length;
        return sum;
    }

    /// Packets of a parameter server are of the step of the first worker.
    void CountPlaces(size_t number, Number steps)
    {
        m_places[number] += steps;
        for (size_t host = m_number; number == 0 && host < m_places.size(); ++host)
            m_places[host] += steps;
    }

    // computation

    double Factor(Number step, size_t worker) const
    {
        const auto& factors = m_scenario.lists.at("factors");
        const Number rows = factors.size() / m_number;
        return factors[std::min(step, rows - 1) * m_number + worker];
    }

    /// The end of a forward pass is that of a step; the backward pass of the next begins.
    void EndForward(size_t number)
    {
        Worker& worker = m_workers[number];
        ++worker.step;
        m_forward_ends.Write({worker.step, Number(number), NowNs()});
        if (m_job == 0)
            CountPlaces(number, 1);
        if (worker.step == m_steps && m_job == 0) // other jobs go on until this one has ended
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
            elapsed += m_scenario.lists.at("backward_ns")[layer] * Factor(worker.step + 1, number);
            ends[layer] = std::llround(elapsed);
        }
        for (size_t k = 0; k < m_scenario.buffers.size(); ++k)
            Simulator::Schedule(NanoSeconds(ends[m_scenario.buffers[k].first]), &Training::Computed, this, k);
        Simulator::Schedule(NanoSeconds(ends[0]), &Training::EndBackward, this, number);
        if (++m_in_step == m_number && m_on_step)
            m_on_step();
    }

    /// Buffers are missing again; nobody is behind the step before, whose counters the other half has.
    void BeginStep(Number step)
    {
        if (step <= m_step)
            return;
        m_step = step;
        m_step_begin = NowNs();
        m_in_step = 0;
        m_missing[step % 2] = m_buffers_of;
        m_missing_in_all[step % 2] = m_scenario.buffers.size();
        m_computed.assign(m_scenario.buffers.size(), 0);
        m_is_exchanged.assign(m_scenario.buffers.size(), false);
    }

    void EndBackward(size_t number)
    {
        m_workers[number].has_gradients = true;
        Advance(number);
    }

    void Advance(size_t number)
    {
        Worker& worker = m_workers[number];
        if (worker.is_computing || !worker.has_gradients)
            return;
        const auto half = worker.step % 2;
        if (m_has_barrier ? m_missing_in_all[half] > 0 : m_missing[half][worker.layer] > 0)
            return;
        worker.is_computing = true;
        const double length = m_scenario.lists.at("forward_ns")[worker.layer] * Factor(worker.step + 1, number);
        Simulator::Schedule(NanoSeconds(std::llround(length)), &Training::EndLayer, this, number);
    }

    void EndLayer(size_t number)
    {
        Worker& worker = m_workers[number];
        worker.is_computing = false;
        if (++worker.layer == m_layers)
            EndForward(number);
        else
            Advance(number);
    }

    // the global synchroniser

    void Computed(size_t buffer)
    {
        if (++m_computed[buffer] == Number(m_number))
            Await(0, buffer);
    }

    void Await(int phase, Number buffer)
    {
        m_phases[phase].waiting.push_back({NowNs(), buffer});
        Simulator::ScheduleNow(&Training::BeginNext, this, phase); // after what else happens now
    }

    void BeginNext(int phase)
    {
        Phase& here = m_phases[phase];
        if (here.buffer >= 0 || here.waiting.empty())
            return;
        const auto rank = [this](const std::pair<Number, Number>& one) {
            const Number first = m_scenario.buffers[one.second].first;
            return m_has_priority ? std::make_tuple(first, one.first, one.second)
                                  : std::make_tuple(one.first, -first, one.second);
        };
        const auto next = std::min_element(here.waiting.begin(), here.waiting.end(),
                                           [&rank](const auto& a, const auto& b) { return rank(a) < rank(b); });
        here.buffer = next->second;
        here.waiting.erase(next);
        here.start = NowNs();
        const Service service = ServiceOf(phase, here.buffer);
        here.is_high = service.tos == m_scenario.Value("background_tos");
        m_collective->Begin(phase, {m_step, here.buffer, m_scenario.buffers[here.buffer].bytes}, service);
    }

    /// The service of a buffer's exchange: that of the training, or of the background. layers: high for the first ones. deadline: high where less time is
    /// left until the forward pass needs it than it and all that goes before it take without other traffic.
    Service ServiceOf(int phase, Number buffer) const
    {
        const auto& rule = m_scenario.Word("priority_rule");
        bool is_high = false;
        if (rule == "layers")
            is_high = m_scenario.buffers[buffer].first < m_scenario.Value("high_layers");
        else if (rule == "deadline")
            is_high = SlackNs(phase, buffer) < 0;
        const std::string who = is_high ? "background" : "training";
        return {uint8_t(m_scenario.Value(who + "_tos")), m_scenario.Value(who + "_min_rto_ns")};
    }

    /// Time left for a buffer's exchange: until the slowest worker needs its layers, less what it and all that go before
    /// it take. Exchanges in two phases overlap: each of the others takes one.
    double SlackNs(int phase, Number buffer) const
    {
        const Number first = m_scenario.buffers[buffer].first;
        double computing = Sum("backward_ns"), slowest = 0;
        if (!m_has_barrier)
            for (Number layer = 0; layer < first; ++layer)
                computing += m_scenario.lists.at("forward_ns")[layer];
        for (size_t i = 0; i < m_number; ++i)
            slowest = std::max(slowest, Factor(m_step + 1, i));
        const auto& lasts = m_scenario.lists.at("phase_ns");
        double work = lasts[buffer] * (m_phases.size() - phase);
        for (size_t k = 0; k < m_scenario.buffers.size(); ++k)
            if (Number(k) != buffer && !m_is_exchanged[k] && (m_has_barrier || m_scenario.buffers[k].first <= first))
                work += lasts[k];
        return m_step_begin + computing * slowest - NowNs() - work;
    }

    void EndExchange(int phase)
    {
        Phase& here = m_phases[phase];
        m_exchanges.Write({m_step, here.buffer, phase, here.is_high, here.start, NowNs()});
        const bool is_last = phase + 1 == m_collective->Phases();
        const Number buffer = here.buffer;
        here.buffer = -1;
        // an update is between aggregation and distribution, or after an exchange in one phase
        const Time update = NanoSeconds(m_phases.size() == 1 || !is_last ? m_scenario.Value("update_ns") : 0);
        if (is_last)
            Simulator::Schedule(update, &Training::HaveGradients, this, m_step, buffer);
        else
            Simulator::Schedule(update, &Training::Await, this, phase + 1, buffer);
        Simulator::ScheduleNow(&Training::BeginNext, this, phase);
    }

    void HaveGradients(Number step, Number buffer)
    {
        m_is_exchanged[buffer] = true;
        const auto& layers = m_scenario.buffers[buffer];
        auto& missing = m_missing[step % 2];
        for (Number layer = layers.first; layer <= layers.last; ++layer)
            missing[layer] -= m_buffers_of[layer] > 0;
        --m_missing_in_all[step % 2];
        for (size_t number = 0; number < m_number; ++number)
            Advance(number);
    }

    const Scenario& m_scenario;
    std::vector<Number>& m_places;
    Number m_job;
    size_t m_number;
    Number m_layers;
    bool m_has_barrier, m_has_priority;
    Number m_steps, m_step = -1, m_step_begin = 0, m_missing_in_all[2] = {};
    size_t m_done = 0, m_in_step = 0;
    std::vector<Worker> m_workers;
    std::vector<Number> m_buffers_of, m_missing[2], m_computed;
    std::vector<bool> m_is_exchanged;
    std::vector<Phase> m_phases;
    std::function<void()> m_on_step;
    StepRows<3, 1> m_forward_ends;
    StepRows<6, 2> m_exchanges;
    Transfers m_transfers;
    std::unique_ptr<Collective> m_collective;
};

} // namespace ddnn

#endif
