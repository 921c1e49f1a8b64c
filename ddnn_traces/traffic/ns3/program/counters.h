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

    /// Count a packet at the begin of its transmission: PPP, IPv4 without options, TCP.
    void Sent(Number host, Ptr<const Packet> packet)
    {
        uint8_t head[42];
        if (packet->CopyData(head, sizeof head) < sizeof head || head[11] != 6)
            return;
        const auto wide = [&head](int i) { return uint64_t(head[i]) << 24 | head[i + 1] << 16 | head[i + 2] << 8 | head[i + 3]; };
        const uint64_t addresses = wide(14) << 32 | wide(18);
        const uint64_t ports = wide(22);
        auto [place, is_new] = m_numbers.try_emplace({addresses, ports}, m_flows.size());
        if (is_new)
            m_flows.push_back(Flow{host, Number(wide(18)), Number(ports >> 16), Number(ports & 0xFFFF), NowNs()});
        Count(place->second, packet->GetSize(), Number(head[4]) << 8 | head[5], head[34] >> 4, head[35], uint32_t(wide(26)));
    }

    void Finish()
    {
        Rows rows(m_out, "flows.csv",
                  "flow,src,dst_address,src_port,dst_port,first_ns,last_ns,packets,wire_bytes,ip_bytes,payload_bytes,captured_bytes,"
                  "syn_packets,fin_packets,rst_packets,retransmitted_packets,retransmitted_bytes,out_of_order_packets,"
                  "out_of_order_bytes");
        for (size_t i = 0; i < m_flows.size(); ++i)
        {
            Flow& f = m_flows[i];
            Flush(i, f.in_window, m_windows);
            Flush(i, f.in_step, m_steps);
            rows.Write(i, f.src, f.dst, f.src_port, f.dst_port, f.first, f.last, f.packets, f.wire, f.ip, f.payload, f.captured, f.syn,
                       f.fin, f.rst, f.again_packets, f.again, f.late_packets, f.late);
        }
    }

  private:
    struct Part
    {
        Number key = -1, packets = 0, wire = 0, payload = 0, again = 0;
    };

    struct Flow
    {
        Number src, dst, src_port, dst_port, first;
        Number last = 0, packets = 0, wire = 0, ip = 0, payload = 0, captured = 0, syn = 0, fin = 0, rst = 0;
        Number again_packets = 0, again = 0, late_packets = 0, late = 0;
        Number next = -1;                ///< sequence number after the highest that was sent, not modulo 2^32
        std::map<Number, Number> gaps{}; ///< begin and end of what is below and was not sent: lost in the host's queue
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

    void Count(size_t number, Number wire, Number ip, int words, int flags, uint32_t sequence)
    {
        Flow& f = m_flows[number];
        const Number payload = ip - 20 - 4 * words;
        const bool syn = flags & 2;
        f.last = NowNs();
        ++f.packets;
        f.wire += wire;
        f.ip += ip;
        f.payload += payload;
        f.captured += std::min(wire, m_snaplen);
        f.syn += syn;
        f.fin += flags & 1;
        f.rst += (flags & 4) != 0;
        const Number again = payload > 0 ? Repeated(f, Whole(f, sequence), payload) : 0;
        if (syn)
            f.next = Number(sequence) + 1;
        Add(number, f.in_window, f.last / m_window, wire, payload, again, m_windows);
        Add(number, f.in_step, m_places[f.src], wire, payload, again, m_steps);
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

    static void Add(size_t flow, Part& part, Number key, Number wire, Number payload, Number again, Rows& rows)
    {
        if (part.key != key)
        {
            Flush(flow, part, rows);
            part.key = key;
        }
        ++part.packets;
        part.wire += wire;
        part.payload += payload;
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
};

} // namespace ddnn

#endif
