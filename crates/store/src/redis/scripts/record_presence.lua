-- Records that a node may hold something in a session, as of a version and later.
-- KEYS: nodes, the list of the node's sessions. ARGV: node, session, version, 1 to put the node on
-- the list of nodes if it is not there, time to live of the keys.
redis.call('ZADD', KEYS[2], 'GT', ARGV[3], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
if ARGV[4] == '1' then
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[1], 'NX', time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return 1
