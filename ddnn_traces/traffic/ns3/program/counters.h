// SPDX-License-Identifier: GPL-2.0-only
//
// What a capture of each host would hold.

#ifndef DDNN_TRACES_COUNTERS
#define DDNN_TRACES_COUNTERS

#include "scenario.h"

#include "ns3/packet.h"

#include <algorithm>
#include <unordered_map>

namespace ddnn
{

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

    /// Count a packet at the start of its transmission: PPP, IPv4 without options, TCP or UDP of 12 bytes or more.
    void Sent(Number host, Ptr<const Packet> packet)
    {
        uint8_t head[42];
        if (packet->CopyData(head, sizeof head) < sizeof head || (head[11] != TCP && head[11] != UDP))
            return;
        const bool is_tcp = head[11] == TCP;
        const auto wide = [&head](int i) { return uint64_t(head[i]) << 24 | head[i + 1] << 16 | head[i + 2] << 8 | head[i + 3]; };
        const uint64_t addresses = wide(14) << 32 | wide(18);
        const uint64_t ports = wide(22);
        auto [place, is_new] = m_numbers.try_emplace({addresses, ports}, m_flows.size());
        if (is_new)
            m_flows.push_back(Flow{host, Number(wide(18)), Number(ports >> 16), Number(ports & 0xFFFF), head[11], NowNs()});
        const Number ip = Number(head[4]) << 8 | head[5];
        const size_t number = place->second;
        const Number headers = 20 + (is_tcp ? 4 * (head[34] >> 4) : 8);
        const Sending sending{number,         NowNs(), m_places[host], Number(packet->GetSize()), ip, ip - headers,
                              is_tcp ? head[35] : 0};
        const Number again = is_tcp ? Again(m_flows[number], sending, uint32_t(wide(26))) : 0;
        Count(sending, again);
        if (!m_is_recording)
            return;
        m_recording.push_back(sending);
        m_are_new &= again == 0;
    }

    /// Begin to record what is sent, to repeat it. Returns whether all that was recorded so far was sent for the first time.
    bool Record()
    {
        const bool were_new = m_is_recording && m_are_new;
        m_recorded.swap(m_recording);
        m_recording.clear();
        m_is_recording = m_are_new = true;
        return were_new;
    }

    /// Count again, so many times, what was recorded before Record() was called last.
    void Repeat(Number times, Number period)
    {
        for (Number i = 1; i <= times; ++i)
        {
            for (Sending sending : m_recorded)
            {
                sending.at += i * period;
                sending.place += i;
                Count(sending, 0);
            }
        }
    }

    void Finish()
    {
        Rows rows(m_out, "flows.csv",
                  "flow,src,dst_address,src_port,dst_port,protocol,first_ns,last_ns,packets,wire_bytes,ip_bytes,payload_bytes,captured_bytes,"
                  "syn_packets,fin_packets,rst_packets,retransmitted_packets,retransmitted_bytes,out_of_order_packets,"
                  "out_of_order_bytes");
        for (size_t i = 0; i < m_flows.size(); ++i)
        {
            Flow& f = m_flows[i];
            Flush(i, f.in_window, m_windows);
            Flush(i, f.in_step, m_steps);
            rows.Write(i, f.src, f.dst, f.src_port, f.dst_port, f.protocol, f.first, f.last, f.packets, f.wire, f.ip, f.payload, f.captured, f.syn,
                       f.fin, f.rst, f.again_packets, f.again, f.late_packets, f.late);
        }
    }

  private:
    static constexpr uint8_t TCP = 6, UDP = 17; ///< numbers of protocols in IPv4

    struct Part
    {
        Number key = -1, packets = 0, wire = 0, payload = 0, again = 0;
    };

    struct Flow
    {
        Number src, dst, src_port, dst_port, protocol, first;
        Number last = 0, packets = 0, wire = 0, ip = 0, payload = 0, captured = 0, syn = 0, fin = 0, rst = 0;
        Number again_packets = 0, again = 0, late_packets = 0, late = 0;
        Number next = -1;                ///< sequence number after the highest that was sent, not modulo 2^32
        std::map<Number, Number> gaps{}; ///< start and end of what is below and was not sent: lost in the host's queue
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

    /// A packet that is sent; place: forward passes that the sender had ended.
    struct Sending
    {
        size_t flow;
        Number at, place, wire, ip, payload;
        int flags;
    };

    void Count(const Sending& sending, Number again)
    {
        Flow& f = m_flows[sending.flow];
        f.last = sending.at;
        ++f.packets;
        f.wire += sending.wire;
        f.ip += sending.ip;
        f.payload += sending.payload;
        f.captured += std::min(sending.wire, m_snaplen);
        f.syn += (sending.flags & 2) != 0;
        f.fin += sending.flags & 1;
        f.rst += (sending.flags & 4) != 0;
        Add(sending, f.in_window, f.last / m_window, again, m_windows);
        Add(sending, f.in_step, sending.place, again, m_steps);
    }

    /// Bytes of a packet that were sent before.
    static Number Again(Flow& f, const Sending& sending, uint32_t sequence)
    {
        const Number again = sending.payload > 0 ? Repeated(f, Whole(f, sequence), sending.payload) : 0;
        if (sending.flags & 2)
            f.next = Number(sequence) + 1;
        return again;
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

    static void Add(const Sending& sending, Part& part, Number key, Number again, Rows& rows)
    {
        if (part.key != key)
        {
            Flush(sending.flow, part, rows);
            part.key = key;
        }
        ++part.packets;
        part.wire += sending.wire;
        part.payload += sending.payload;
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
    bool m_is_recording = false, m_are_new = false;
    std::vector<Sending> m_recording, m_recorded;
};

} // namespace ddnn

#endif
