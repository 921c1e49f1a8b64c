-- question: Which hosts count as those of a run, and not as addresses that only the network's own protocols use?
-- subject: runs
-- row: a run and a host
-- inputs: hosts, flows, encapsulations
-- optional: encapsulations
-- column: run_id from hosts
-- column: host_ip from hosts
-- column: label
-- column: role
-- A host counts if it has a label or a role, or if it exchanges data with another host of the table hosts, which has no multicast and no
-- broadcast address. ICMP, ICMPv6 and IGMP are no data, nor are DHCP, mDNS, LLMNR, SSDP and NetBIOS names. So the link-local addresses
-- of neighbour discovery do not count, nor who only announces a service, nor the ends of a tunnel: the hosts are those inside it. Packets of a
-- tunnel that cannot be opened, as ARP in VXLAN, are no data. A host without any flow counts: nothing is known against it.
-- Charts of hosts and pairs draw these hosts only.
WITH own_protocols AS (
    SELECT [1, 2, 58] AS protocols,  -- ICMP, IGMP, ICMPv6
           17 AS udp,
           [67, 68, 137, 138, 546, 547, 1900, 5353, 5355] AS service_ports
), tunnels AS (
    SELECT DISTINCT run_id, src_ip, dst_ip, protocol, dst_port, true AS is_tunnel
    FROM encapsulations
), ends AS (
    SELECT run_id, src_ip, dst_ip, unnest([src_ip, dst_ip]) AS host_ip,
           coalesce(is_tunnel, false) OR list_contains(protocols, protocol)
           OR protocol = udp AND (coalesce(list_contains(service_ports, src_port), false) OR coalesce(list_contains(service_ports, dst_port), false))
               AS is_own
    FROM flows
    LEFT JOIN tunnels USING (run_id, src_ip, dst_ip, protocol, dst_port)
    CROSS JOIN own_protocols
), seen AS (
    SELECT e.run_id, e.host_ip,
           bool_or(NOT is_own AND src_ip <> dst_ip AND s.host_ip IS NOT NULL AND d.host_ip IS NOT NULL) AS exchanges
    FROM ends AS e
    LEFT JOIN hosts AS s ON s.run_id = e.run_id AND s.host_ip = src_ip
    LEFT JOIN hosts AS d ON d.run_id = e.run_id AND d.host_ip = dst_ip
    GROUP BY e.run_id, e.host_ip
)
SELECT run_id, host_ip, label, role
FROM hosts
LEFT JOIN seen USING (run_id, host_ip)
WHERE label IS NOT NULL OR role IS NOT NULL OR coalesce(exchanges, true)
ORDER BY run_id, host_ip
