-- question: How many standard errors does a 95% interval of a mean reach to each side?
-- subject: runs
-- row: degrees of freedom, 1 to 1,000
-- inputs: none
-- column: df degrees of freedom; degrees of freedom
-- column: t standard errors; 97.5% point of Student's t
-- Values to 30 degrees of freedom are a table. Beyond, they follow the expansion of Abramowitz and Stegun (26.7.5)
-- about the normal distribution's quantile, exact to 0.000002.
WITH tabulated AS (
    SELECT unnest(range(1, 31)) AS df,
           unnest([12.7062047364, 4.3026527297, 3.1824463053, 2.7764451052, 2.5705818366, 2.4469118487, 2.3646242510,
                   2.3060041352, 2.2621571628, 2.2281388520, 2.2009851601, 2.1788128297, 2.1603686565, 2.1447866879,
                   2.1314495456, 2.1199052992, 2.1098155778, 2.1009220402, 2.0930240544, 2.0859634473, 2.0796138447,
                   2.0738730679, 2.0686576104, 2.0638985616, 2.0595385528, 2.0555294386, 2.0518305165, 2.0484071418,
                   2.0452296421, 2.0422724563]) AS t
), expanded AS (
    SELECT unnest(range(31, 1001)) AS df, 1.9599639845 AS z,
           z + (z ** 3 + z) / (4 * df) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * df ** 2)
             + (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * df ** 3) AS t
)
SELECT df::BIGINT AS df, t::DOUBLE AS t FROM tabulated
UNION ALL
SELECT df::BIGINT, t::DOUBLE FROM expanded
ORDER BY df
