-- question: Which words for a topology are known, and what do they mean?
-- subject: topology
-- row: a pattern of words
-- inputs: collective_laws
-- column: pattern; regular expression of the whole word in lower case, with _ for -
-- column: topology
SELECT DISTINCT words AS pattern, topology
FROM collective_laws()
WHERE words IS NOT NULL
UNION ALL
VALUES ('parameter_?server|ps', 'parameter_server')
ORDER BY topology, pattern
